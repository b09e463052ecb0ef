// SPDX-License-Identifier: Apache-2.0
// openapi.yaml as data: its operations, and validators for its schemas.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Ajv2020 from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { parse } from 'yaml';

export const defaultPath = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'openapi.yaml');
export const methods = ['get', 'put', 'post', 'patch', 'delete'];

// Answers may grow for old clients, but not behind the document's back: in the tests every object of an answer that
// lists its members has no others. Parts of an allOf are closed where they are used, all together.
function close(schema, isPart) {
  if (Array.isArray(schema)) return schema.map((s) => close(s, isPart));
  if (schema === null || typeof schema !== 'object') return schema;
  const closed = {};
  for (const [key, value] of Object.entries(schema)) {
    if (key === 'allOf') closed[key] = close(value, true);
    else if (['anyOf', 'oneOf', 'items', 'additionalProperties', 'schema'].includes(key)) closed[key] = close(value, false);
    else if (key === 'properties') closed[key] = Object.fromEntries(Object.entries(value).map(([n, s]) => [n, close(s, false)]));
    else closed[key] = value;
  }
  const lists = '$ref' in schema || 'properties' in schema || 'allOf' in schema;
  if (lists && !isPart && schema.additionalProperties === undefined) closed.unevaluatedProperties = false;
  return closed;
}

export function load(path = defaultPath) {
  const text = readFileSync(path, 'utf8');
  const raw = parse(text);
  const closed = structuredClone(raw);
  for (const [name, schema] of Object.entries(closed.components.schemas)) closed.components.schemas[name] = close(schema, true);
  const resolve = (node) => {
    while (node && node.$ref) node = node.$ref.slice(2).split('/').reduce((at, key) => at[key.replaceAll('~1', '/').replaceAll('~0', '~')], raw);
    return node;
  };
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats(ajv);
  ajv.addSchema(closed, 'document');
  const compiled = new Map();
  const validate = (schema, value, isAnswer) => {
    const key = JSON.stringify([schema, isAnswer]);
    if (!compiled.has(key)) {
      const absolute = JSON.parse(JSON.stringify(isAnswer ? close(schema, false) : schema), (name, v) => (name === '$ref' ? 'document' + v : v));
      compiled.set(key, ajv.compile(absolute));
    }
    const check = compiled.get(key);
    return check(value) ? [] : check.errors.map((e) => `${e.instancePath || '/'} ${e.message}${e.params.unevaluatedProperty ? ` (${e.params.unevaluatedProperty})` : ''}`);
  };

  const operations = [];
  for (const [path, item] of Object.entries(raw.paths)) {
    for (const method of methods) {
      const op = item[method];
      if (!op) continue;
      const parameters = [...(item.parameters ?? []), ...(op.parameters ?? [])].map(resolve);
      const responses = Object.fromEntries(Object.entries(op.responses).map(([status, r]) => [status, resolve(r)]));
      operations.push({ id: op.operationId, path, method: method.toUpperCase(), parameters, responses, body: op.requestBody });
    }
  }
  return { raw, text, resolve, validate, operations };
}

// "application/json; charset=utf-8" → "application/json"
export const mediaType = (header) => (header ?? '').split(';')[0].trim().toLowerCase();

export const isJson = (type) => type === 'application/json' || type.endsWith('+json');
