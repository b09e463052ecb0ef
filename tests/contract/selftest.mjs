// SPDX-License-Identifier: Apache-2.0
// The contract test against a server made of openapi.yaml's own examples: it passes; and against that server with one
// thing broken: it fails. So the scenario is complete and the checks can fail, without a real server.
//
//     node selftest.mjs
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { load } from './document.mjs';

const doc = load();
const here = dirname(fileURLToPath(import.meta.url));
const operations = new Map(doc.operations.map((op) => [op.id, op]));

const samples = { integer: '45', string: '"tag"' };

function headersFor(op, response, wanted) {
  const headers = {};
  for (const [name, ref] of Object.entries(response.headers ?? {})) {
    const header = doc.resolve(ref);
    if (header.required) headers[name] = samples[header.schema.type];
    else if (name === 'Idempotency-Replayed' && wanted.replayed) headers[name] = 'true';
  }
  if (wanted.code === 405) headers.Allow = op.path === '/livez' ? 'GET, HEAD' : 'GET, HEAD, POST';
  return headers;
}

function problemBody(wanted) {
  const code = wanted.problem ?? Object.entries(doc.raw['x-problem-codes']).find(([, status]) => status === wanted.code)[0];
  const body = { type: `/problems/${code}`, title: 'No', status: wanted.code, code, detail: 'no', instance: '1' };
  if (wanted.pointer) body.errors = [{ pointer: wanted.pointer, detail: 'no' }];
  if (['stale_epoch', 'not_owner', 'partition_retired'].includes(code)) {
    body.routes = [];
    body.route = { ...doc.raw.components.examples.Route.value };
    delete body.route.revision;
  }
  if (wanted.code === 503) body.retry_after_ms = 1500;
  return body;
}

// Of the examples, those that show what the scenario goes on with.
const favourites = new Map([['listNodes', 'page'], ['listPartitions', 'page']]);

function bodyFor(op, response, wanted, accept) {
  const types = Object.keys(response.content ?? {});
  if (types.includes('application/problem+json')) return ['application/problem+json', JSON.stringify(problemBody(wanted))];
  const type = types.includes(accept) ? accept : types[0];
  if (type === undefined) return [undefined, ''];
  const examples = response.content[type].examples ?? {};
  const chosen = doc.resolve(examples[favourites.get(op.id)] ?? Object.values(examples)[0]);
  if (type === 'application/octet-stream') return [type, '\0'];
  if (type === 'application/vnd.sqlite3') return [type, 'SQLite format 3\0more'];
  if (typeof chosen.value === 'string') return [type, chosen.value];
  // Example bodies are of several moments; the header is always 45.
  return [type, JSON.stringify('revision' in chosen.value ? { ...chosen.value, revision: 45 } : chosen.value)];
}

function answer(req, spoil) {
  const wanted = Object.fromEntries(req.headers.prefer.split(', ').map((part) => part.split('=')));
  wanted.code = Number(wanted.code);
  const op = operations.get(wanted.op);
  const response = op.responses[wanted.code] ?? op.responses.default;
  const [type, body] = bodyFor(op, response, wanted, req.headers.accept);
  const given = { status: wanted.code, headers: headersFor(op, response, wanted), type, body };
  spoil(given, op);
  return given;
}

async function contractAgainst(spoil) {
  const server = createServer((req, res) => {
    req.resume();
    req.on('end', () => {
      const given = answer(req, spoil);
      res.writeHead(given.status, { ...given.headers, ...(given.type ? { 'Content-Type': given.type } : {}) });
      res.end(given.body);
    });
  });
  await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
  const child = spawn(process.execPath, [join(here, 'contract.mjs'), `http://127.0.0.1:${server.address().port}`]);
  let output = '';
  child.stdout.on('data', (d) => { output += d; });
  child.stderr.on('data', (d) => { output += d; });
  const code = await new Promise((done) => { child.on('close', done); });
  server.closeAllConnections();
  server.close();
  return { code, output };
}

const json = (given, change) => {
  if (given.type === 'application/json') given.body = JSON.stringify(change(JSON.parse(given.body)));
};
const cases = [
  ['as documented', 0, () => undefined],
  ['an undocumented member', 1, (g, op) => op.id === 'getKeyspace' && g.status === 200 && json(g, (b) => ({ ...b, surprise: 1 }))],
  ['an undocumented member deep inside', 1, (g, op) => op.id === 'getRoute' && json(g, (b) => ({ ...b, replicas: [{ ...b.replicas[0], surprise: 1 }] }))],
  ['a missing member', 1, (g, op) => op.id === 'getMap' && json(g, (b) => ({ routes: b.routes }))],
  ['a wrong type', 1, (g, op) => op.id === 'getNode' && g.status === 200 && json(g, (b) => ({ ...b, session: '7' }))],
  ['a missing header', 1, (g, op) => op.id === 'listNodes' && delete g.headers['Cadastre-Staleness-Ms']],
  ['a revision that differs from its header', 1, (g, op) => op.id === 'getOperation' && g.status === 200 && json(g, (b) => ({ ...b, revision: 44 }))],
  ['a wrong status', 1, (g, op) => { if (op.id === 'createKeyspace' && g.status === 201) g.status = 200; }],
  ['a wrong media type', 1, (g, op) => { if (op.id === 'getMetrics') g.type = 'application/json'; }],
  ['an unknown problem code', 1, (g) => { if (g.status === 409) g.body = g.body.replaceAll('node_in_use', 'node_is_used'); }],
  ['a problem type that is not its code', 1, (g) => { if (g.status === 409) g.body = g.body.replace('/problems/', '/problems/x'); }],
  ['a line of the map that is no route', 1, (g) => { if (g.type === 'application/x-ndjson') g.body += '{"keyspace":"orders"}\n'; }],
  ['an event whose id is not its revision', 1, (g) => { if (g.type === 'text/event-stream') g.body = g.body.replace('id: 44', 'id: 43'); }],
];

let failed = 0;
for (const [name, wanted, spoil] of cases) {
  const { code, output } = await contractAgainst(spoil);
  const ok = code === wanted && (wanted === 0 || /not ok/.test(output));
  if (!ok) {
    failed += 1;
    console.log(`not ok - ${name}\n${output.replaceAll(/^/gm, '    ')}`);
  }
}
console.log(`${cases.length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
