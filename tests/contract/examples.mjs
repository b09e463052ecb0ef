// SPDX-License-Identifier: Apache-2.0
// Every example of openapi.yaml against its own schema, every request object closed, the codes listed once.
//
//     node examples.mjs [openapi.yaml]
import { load } from './document.mjs';

const doc = load(process.argv[2]);
let passed = 0;
let failed = 0;
const report = (name, problems) => {
  if (problems.length === 0) passed += 1;
  else {
    failed += 1;
    console.log(`not ok - ${name}\n    ${problems.join('\n    ')}`);
  }
};

function openObjects(schema, where, seen = new Set()) {
  const target = doc.resolve(schema);
  if (target === null || typeof target !== 'object' || seen.has(target)) return [];
  seen.add(target);
  const open = target.properties && target.additionalProperties !== false && !target['x-open'] ? [`${where} takes unknown members`] : [];
  const inner = [
    ...Object.entries(target.properties ?? {}).map(([n, s]) => [s, `${where}/${n}`]),
    ...(target.items ? [[target.items, `${where}/0`]] : []),
    ...[...(target.anyOf ?? []), ...(target.allOf ?? [])].map((s) => [s, where]),
  ];
  return inner.reduce((all, [s, at]) => all.concat(openObjects(s, at, seen)), open);
}

function checkContent(content, name, isAnswer) {
  for (const [type, media] of Object.entries(content ?? {})) {
    for (const [example, value] of Object.entries(media.examples ?? {})) {
      report(`${name} ${type} ${example}`, doc.validate(media.schema, doc.resolve(value).value, isAnswer));
    }
    if (!isAnswer) report(`${name} ${type} is closed`, openObjects(media.schema, ''));
  }
}

for (const op of doc.operations) {
  checkContent(op.body?.content, `${op.id} request`, false);
  for (const [status, response] of Object.entries(op.responses)) checkContent(response.content, `${op.id} ${status}`, true);
  for (const p of op.parameters.filter((q) => q.example !== undefined)) {
    report(`${op.id} parameter ${p.name}`, doc.validate(p.schema, p.example, false));
  }
  const inPath = [...op.path.matchAll(/\{(\w+)\}/g)].map((m) => m[1]).sort();
  const named = op.parameters.filter((p) => p.in === 'path').map((p) => p.name).sort();
  report(`${op.id} names its path's variables`, inPath.join() === named.join() ? [] : [`${inPath} and ${named}`]);
}

const listed = doc.raw['x-problem-codes'];
report('x-problem-codes and ProblemCode agree', Object.keys(listed).join() === doc.raw.components.schemas.ProblemCode.enum.join() ? [] : ['they differ']);
for (const [name, response] of Object.entries(doc.raw.components.responses)) {
  const part = response.content?.['application/problem+json']?.schema.allOf?.[1].properties;
  if (!part) continue;
  const wanted = Object.keys(listed).filter((code) => listed[code] === part.status.const);
  report(`the codes of ${name}`, wanted.join() === part.code.enum.join() ? [] : [`wanted ${wanted}`]);
}

console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
