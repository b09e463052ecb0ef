// SPDX-License-Identifier: Apache-2.0
// Holds a live server to openapi.yaml: sends the scenario, checks status, media type, headers and body of each answer.
// The server is a fresh cluster of one.
//
//     node contract.mjs http://127.0.0.1:7400
import { defaultPath, isJson, load, mediaType } from './document.mjs';
import { steps, unreachable } from './scenario.mjs';

const STREAM_MS = 10000;

const url = process.argv[2]?.replace(/\/$/, '');
if (!url) {
  console.error('usage: node contract.mjs URL [openapi.yaml]');
  process.exit(2);
}
const doc = load(process.argv[3] ?? defaultPath);
const operations = new Map(doc.operations.map((op) => [op.id, op]));
const context = {};
const covered = new Set();
let passed = 0;
let failed = 0;
const report = (name, problems) => {
  if (problems.length === 0) passed += 1;
  else {
    failed += 1;
    console.log(`not ok - ${name}\n    ${problems.join('\n    ')}`);
  }
};

const value = (v) => (typeof v === 'function' ? v(context) : v);
const values = (object) => Object.fromEntries(Object.entries(object ?? {}).map(([k, v]) => [k, value(v)]).filter(([, v]) => v !== undefined));

function request(step, op) {
  const path = values(step.path);
  const target = step.target ?? op.path.replaceAll(/\{(\w+)\}/g, (_, name) => encodeURIComponent(String(path[name])));
  const query = new URLSearchParams(values(step.query)).toString();
  const headers = values(step.headers);
  const type = step.type ?? 'application/json';
  let body;
  if (step.example) {
    body = structuredClone(doc.resolve(op.body.content[type].examples[step.example]).value);
    covered.add(`${op.id} ${type} ${step.example}`);
  }
  if (step.body) body = step.body(body, context);
  const text = step.text ?? (body === undefined ? undefined : JSON.stringify(body));
  if (text !== undefined) headers['Content-Type'] = step.rawType ?? type;
  if (step.accept) headers.Accept = step.accept;
  // Which of the examples a mock should give: a server does not look at it.
  const wanted = { op: op.id, code: step.status, problem: step.code, pointer: step.pointer, replayed: step.replayed };
  headers.Prefer = Object.entries(wanted).filter(([, v]) => v !== undefined).map(([k, v]) => `${k}=${v}`).join(', ');
  return { target: query ? `${target}?${query}` : target, headers, body, text, type };
}

// A test that sends what the document forbids, without meaning to, proves nothing.
function checkRequest(step, op, { body, type }) {
  if (step.invalid) return [];
  const query = values(step.query);
  const known = op.parameters.filter((p) => p.in === 'query');
  const problems = Object.keys(query).filter((name) => !known.some((p) => p.name === name)).map((name) => `the test's query ${name} is not documented`);
  for (const p of known) {
    if (p.required && !(p.name in query)) problems.push(`the test leaves out ${p.name}`);
    if (p.name in query && p.schema.type === 'integer') problems.push(...doc.validate(p.schema, Number(query[p.name]), false));
  }
  if (body !== undefined) problems.push(...doc.validate(op.body.content[type].schema, body, false).map((e) => `the test's body: ${e}`));
  return problems;
}

function checkHeaders(response, documented) {
  const problems = [];
  for (const [name, ref] of Object.entries(documented.headers ?? {})) {
    const header = doc.resolve(ref);
    const text = response.headers.get(name);
    if (text === null) {
      if (header.required) problems.push(`header ${name} is missing`);
      continue;
    }
    const typed = header.schema.type === 'integer' ? Number(text) : text;
    problems.push(...doc.validate(header.schema, typed, false).map((e) => `header ${name}: ${e}`));
  }
  return problems;
}

// Reads events until the first change, which must be a Change.
async function checkStream(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (!/^event: change$[^]*\n\n/m.test(text)) {
    const { done, value: chunk } = await reader.read();
    if (done) return [`the stream ended before a change: ${JSON.stringify(text)}`];
    text += chunk.replaceAll('\r\n', '\n');
  }
  const event = text.split('\n\n').find((e) => e.includes('event: change'));
  const data = event.split('\n').filter((l) => l.startsWith('data:')).map((l) => l.slice(5).trim()).join('\n');
  const change = JSON.parse(data);
  const problems = doc.validate({ $ref: '#/components/schemas/Change' }, change, true);
  if (!event.split('\n').includes(`id: ${change.revision}`)) problems.push('the id is not the revision');
  if (!/^retry: ?\d+$/m.test(text)) problems.push('no retry:');
  return problems;
}

async function checkBody(response, type, media) {
  if (type === 'text/event-stream') return { problems: await checkStream(response) };
  if (type === 'application/vnd.sqlite3') {
    const head = Buffer.from(await response.arrayBuffer()).subarray(0, 16).toString('latin1');
    return { problems: head === 'SQLite format 3\0' ? [] : ['not a SQLite file'] };
  }
  const text = await response.text();
  if (type === 'application/x-ndjson') {
    const lines = text.split('\n').filter((l) => l !== '');
    return { problems: lines.flatMap((l) => doc.validate({ $ref: '#/components/schemas/Route' }, JSON.parse(l), true)) };
  }
  const body = isJson(type) ? JSON.parse(text) : text;
  return { body, problems: doc.validate(media.schema, body, true) };
}

function checkMeaning(step, response, body) {
  const problems = step.check ? step.check(body, context, response.headers) : [];
  if (step.code && body?.code !== step.code) problems.push(`code ${body?.code}, not ${step.code}`);
  if (step.pointer !== undefined && body?.errors?.[0].pointer !== step.pointer) problems.push(`pointer ${body?.errors?.[0].pointer}, not ${step.pointer}`);
  if (body?.retry_after_ms !== undefined && Number(response.headers.get('retry-after')) * 1000 < body.retry_after_ms) problems.push('Retry-After is below retry_after_ms');
  if (step.replayed && response.headers.get('idempotency-replayed') !== 'true') problems.push('not a replay');
  if (body?.code && body.status !== response.status) problems.push(`status ${body.status} in a ${response.status}`);
  if (body?.code && doc.raw['x-problem-codes'][body.code] !== response.status) problems.push(`${body.code} with status ${response.status}`);
  if (body?.code && body.type !== `/problems/${body.code}`) problems.push(`type ${body.type} of ${body.code}`);
  const revision = response.headers.get('cadastre-revision');
  if (body?.revision !== undefined && String(body.revision) !== revision) problems.push(`Cadastre-Revision ${revision}, body ${body.revision}`);
  return problems;
}

function send(step, op, sent) {
  return fetch(url + sent.target, {
    method: step.method ?? op.method,
    headers: sent.headers,
    body: sent.text,
    redirect: 'manual',
    signal: AbortSignal.timeout(STREAM_MS),
  });
}

// A step marked `eventually` is sent again until it is answered as it should be, for at most ten seconds.
async function sendUntil(step, op, sent) {
  const until = Date.now() + 10000;
  for (;;) {
    const response = await send(step, op, sent);
    if (!step.eventually || response.status === step.status || Date.now() > until) return response;
    await response.arrayBuffer();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function run(step) {
  const op = operations.get(step.op);
  const sent = request(step, op);
  const problems = checkRequest(step, op, sent);
  const response = await sendUntil(step, op, sent);
  const type = mediaType(response.headers.get('content-type'));
  const documented = op.responses[response.status] ?? op.responses.default;
  const media = documented.content?.[type];
  if (response.status !== step.status) problems.push(`status ${response.status}, not ${step.status}: ${await response.text()}`);
  else if (documented.content && !media) problems.push(`a ${response.status} of type "${type}" is not documented`);
  else {
    problems.push(...checkHeaders(response, documented));
    const checked = media ? await checkBody(response, type, media) : { body: undefined, problems: [] };
    problems.push(...checked.problems, ...checkMeaning(step, response, checked.body));
    covered.add(`${op.id} ${response.status}`).add(`${op.id} ${response.status} ${type}`);
    if (problems.length === 0 && step.save) step.save(checked.body, context, response.headers);
  }
  if (media === undefined || type === 'text/event-stream') await response.body?.cancel().catch(() => undefined);
  return { name: `${step.op}${step.example ? ` ${step.example}` : ''} ${step.method ?? op.method} ${sent.target}`, problems };
}

for (const step of steps) {
  let result;
  try {
    result = await run(step);
  } catch (error) {
    result = { name: step.op, problems: [`${error.message}${error.cause ? `: ${error.cause.message}` : ''}`] };
  }
  report(result.name, result.problems);
}

for (const op of doc.operations) {
  for (const [type, media] of Object.entries(op.body?.content ?? {})) {
    for (const example of Object.keys(media.examples ?? {})) {
      report(`${op.id} sends its example ${example}`, covered.has(`${op.id} ${type} ${example}`) ? [] : ['no step does']);
    }
  }
  for (const [status, response] of Object.entries(op.responses)) {
    if (!/^[23]/.test(status) || status === '307' || unreachable.has(`${op.id} ${status}`)) continue;
    const types = Object.keys(response.content ?? {});
    const seen = types.length ? types.every((t) => covered.has(`${op.id} ${status} ${t}`)) : covered.has(`${op.id} ${status}`);
    report(`${op.id} was seen to answer ${status}`, seen ? [] : ['no step was answered so']);
  }
}

console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
