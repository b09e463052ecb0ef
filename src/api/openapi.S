/* SPDX-License-Identifier: Apache-2.0 */
/* openapi.yaml, as bytes: const char openapi_yaml[]; const size_t openapi_yaml_len (x86-64 and other 64-bit ELF). */
    .section .rodata
    .global openapi_yaml
    .global openapi_yaml_len
openapi_yaml:
    .incbin "openapi.yaml"
1:
    .balign 8
openapi_yaml_len:
    .quad 1b - openapi_yaml
    .section .note.GNU-stack,"",%progbits
