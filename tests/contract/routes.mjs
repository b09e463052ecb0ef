// SPDX-License-Identifier: Apache-2.0
// The operations of openapi.yaml are exactly the routes of the server. The command prints a line "METHOD /path" for
// each of them; names of path variables don't matter.
//
//     node routes.mjs build/release/cadastred --list-routes
import { execFileSync } from 'node:child_process';
import { load } from './document.mjs';

const [command, ...args] = process.argv.slice(2);
if (!command) {
  console.error('usage: node routes.mjs COMMAND [ARGUMENT...]');
  process.exit(2);
}
const plain = (path) => path.replaceAll(/\{\w+\}/g, '{}');
const documented = new Set(load().operations.map((op) => `${op.method} ${plain(op.path)}`));
const served = new Set(
  execFileSync(command, args, { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => {
      const [method, path] = line.trim().split(/\s+/);
      return `${method} ${plain(path ?? '')}`;
    }),
);
let failed = 0;
for (const route of served) {
  if (!documented.has(route)) {
    failed += 1;
    console.log(`not ok - ${route} is served, but not documented`);
  }
}
for (const route of documented) {
  if (!served.has(route)) {
    failed += 1;
    console.log(`not ok - ${route} is documented, but not served`);
  }
}
console.log(`${[...documented].filter((r) => served.has(r)).length} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
