// SPDX-License-Identifier: Apache-2.0
// What is sent, in order, to a fresh cluster of one server. A step:
//
//     op       operationId
//     example  name of the request example to send (of `type`, application/json unless said)
//     path, query, headers    values; functions get the context
//     body     (example, context) => what is really sent: ids of the live server instead of the example's
//     status   the answer wanted
//     accept   the media type asked for
//     code     the problem code wanted
//     pointer  the JSON Pointer of the field at fault that is wanted
//     check    (body, context, headers) => what is wrong with the answer, a list
//     save     (body, context, headers): remembers what later steps need
//     invalid  the request itself breaks the document, on purpose
//     method, target, text    what is sent instead of the operation's method, its path, JSON of the body
//
// contract.mjs fails when an operation, a request example or a documented success has no step.

// Successes that a single server which has no staged moves, and no load to propose anything for, never gives.
export const unreachable = new Set(['transferPartition 202', 'addReplica 202', 'removeReplica 202', 'reportOperation 200',
  'finishValidation 200', 'promoteCandidate 200', 'getProposal 200', 'approveProposal 200', 'rejectProposal 200']);

const orders = { keyspace: 'orders' };
const first = { keyspace: 'orders', partition: (c) => c.first };
const changed = (c) => c.changed;

const allows = (methods) => (b, c, headers) => (headers.get('allow') === methods ? [] : [`Allow: ${headers.get('allow')}`]);
const shows = (member) => (b) => (member in b ? [] : [`no ${member}`]);
const sameAs = (name) => (b, c) => (JSON.stringify(b) === JSON.stringify(c[name]) ? [] : [`${JSON.stringify(b)} is not ${JSON.stringify(c[name])}`]);

export const steps = [
  // Nothing is there yet.
  { op: 'getLivez', status: 200 },
  { op: 'getReadyz', status: 200 },
  { op: 'getReadyz', query: { verbose: '' }, status: 200 },
  { op: 'getMetrics', status: 200 },
  { op: 'getOpenapi', status: 200 },
  { op: 'getIndex', status: 200 },
  { op: 'getCluster', status: 200, save: (b, c) => { c.server = b.id; } },
  { op: 'listServers', status: 200 },
  { op: 'listKeyspaces', status: 200 },
  { op: 'listNodes', status: 200 },
  { op: 'listOperations', status: 200 },
  { op: 'getLivez', method: 'POST', status: 405, code: 'method_not_allowed', check: allows('GET, HEAD') },
  { op: 'listKeyspaces', method: 'PUT', status: 405, code: 'method_not_allowed', check: allows('GET, HEAD, POST') },
  { op: 'getIndex', target: '/v1/nothing', status: 404, code: 'not_found' },
  { op: 'listKeyspaces', query: { colour: 'red' }, invalid: true, status: 400, code: 'invalid_request' },
  { op: 'listKeyspaces', query: { limit: 0 }, invalid: true, status: 400, code: 'invalid_request' },
  { op: 'listKeyspaces', query: { cursor: 'bogus' }, status: 400, code: 'invalid_request' },

  // Nodes.
  { op: 'registerNode', example: 'plain', path: { node: 'n1' }, status: 200, save: (b, c) => { c.session = b.session; } },
  { op: 'registerNode', example: 'labelled', path: { node: 'n2' }, headers: { 'Idempotency-Key': 'contract-n2' }, status: 200 },
  { op: 'registerNode', path: { node: 'n3' }, body: () => ({ address: 'a:1', unknown: 1 }), invalid: true, status: 400, code: 'invalid_request', pointer: '/unknown' },
  { op: 'registerNode', path: { node: 'n3' }, body: () => ({ address: 'a:1', labels: { zone: 1 } }), invalid: true, status: 400, code: 'invalid_request', pointer: '/labels/zone' },
  { op: 'registerNode', path: { node: 'n3' }, text: '{"address":"a:1","address":"b:1"}', invalid: true, status: 400, code: 'invalid_request', pointer: '/address' },
  { op: 'registerNode', path: { node: 'n3' }, text: '{"address":"a:1"} {}', invalid: true, status: 400, code: 'invalid_request' },
  { op: 'registerNode', path: { node: 'N3' }, body: () => ({ address: 'a:1' }), invalid: true, status: 400, code: 'invalid_request' },
  { op: 'getNode', path: { node: 'n1' }, status: 200 },
  { op: 'getNode', path: { node: 'nobody' }, status: 404, code: 'node_not_found' },
  { op: 'listNodes', query: { limit: 1 }, status: 200, save: (b, c) => { c.next = b.next; } },
  { op: 'listNodes', query: { limit: 1, cursor: (c) => c.next }, status: 200 },

  // Keyspaces.
  { op: 'createKeyspace', example: 'range', headers: { 'Idempotency-Key': 'contract-orders' }, status: 201, save: (b, c) => { c.created = b.revision; } },
  { op: 'createKeyspace', example: 'range', headers: { 'Idempotency-Key': 'contract-orders' }, status: 201, replayed: true },
  { op: 'createKeyspace', example: 'hash', headers: { 'Idempotency-Key': 'contract-orders' }, status: 422, code: 'idempotency_mismatch' },
  { op: 'createKeyspace', example: 'range', status: 409, code: 'keyspace_exists' },
  { op: 'createKeyspace', example: 'hash', status: 201 },
  { op: 'createKeyspace', example: 'placed', body: (b) => ({ ...b, replicas: { sync: 0, async: 0 } }), status: 201 },
  { op: 'createKeyspace', example: 'placed', body: (b) => ({ ...b, name: 'invoices2' }), status: 201 },
  { op: 'createKeyspace', body: () => ({ name: 'x', scheme: 'range', splits: ['b', 'a'] }), status: 422, code: 'bad_split_key', pointer: '/splits/1' },
  { op: 'createKeyspace', body: () => ({ name: 'x', scheme: 'composite', layout: {} }), status: 422, code: 'unsupported_scheme' },
  { op: 'createKeyspace', body: () => ({ name: 'x', scheme: 'range', partitions: 1.5 }), invalid: true, status: 400, code: 'invalid_request', pointer: '/partitions' },
  { op: 'createKeyspace', body: () => ({ scheme: 'range' }), invalid: true, status: 400, code: 'invalid_request', pointer: '/name' },
  { op: 'createKeyspace', body: () => ({ name: 'x', scheme: 'range', expect_revision: 1 }), status: 409, code: 'stale_revision' },
  { op: 'getKeyspace', path: orders, status: 200 },
  { op: 'getKeyspace', path: { keyspace: 'sessions' }, status: 200 },
  { op: 'getKeyspace', path: { keyspace: 'nothing' }, status: 404, code: 'keyspace_not_found' },
  { op: 'getKeyspace', path: orders, query: { consistency: 'linearizable', min_revision: (c) => c.created, max_staleness_ms: 60000 }, status: 200 },
  { op: 'getKeyspace', path: orders, query: { min_revision: 9007199254740991, timeout_ms: 0 }, status: 503, code: 'behind' },
  { op: 'getKeyspace', path: orders, query: { consistency: 'hopeful' }, invalid: true, status: 400, code: 'invalid_request' },
  { op: 'listKeyspaces', query: { limit: 1 }, status: 200 },
  { op: 'updateKeyspace', example: 'replicas', path: orders, body: (b) => ({ ...b, replicas: { sync: 0 } }), status: 200 },
  { op: 'updateKeyspace', example: 'policy', path: orders, headers: { 'Idempotency-Key': 'contract-policy' }, status: 200, save: (b, c) => { c.patched = b; } },
  { op: 'updateKeyspace', example: 'policy', path: orders, headers: { 'Idempotency-Key': 'contract-policy' }, status: 200, replayed: true, check: sameAs('patched') },
  { op: 'updateKeyspace', example: 'anywhere', type: 'application/merge-patch+json', path: orders, status: 200 },
  { op: 'updateKeyspace', path: orders, rawType: 'text/plain', body: () => ({}), invalid: true, status: 415, code: 'unsupported_media_type' },
  { op: 'getCommand', path: { key: 'contract-orders' }, status: 200 },
  { op: 'getCommand', path: { key: 'never-sent' }, status: 404, code: 'command_not_found' },

  // Partitions and routes.
  { op: 'listPartitions', path: orders, status: 200, save: (b, c) => {
    [c.first, c.second] = b.partitions.map((p) => p.partition);
    c.second ??= c.first + 1;
    c.epoch = b.partitions[0].epoch;
    c.changed = b.revision;
    c.owner = b.partitions[0].primary?.node;
    c.other = c.owner === 'n1' ? 'n2' : 'n1';
  } },
  { op: 'listPartitions', path: orders, query: { limit: 1 }, status: 200 },
  { op: 'getPartition', path: first, status: 200 },
  { op: 'getPartition', path: { keyspace: 'orders', partition: 9007199254740991 }, status: 404, code: 'partition_not_found' },
  { op: 'getRoute', path: orders, query: { key: 'melon' }, status: 200, save: (b, c, h) => { c.etag = h.get('etag'); } },
  { op: 'getRoute', path: orders, query: { key: '' }, status: 200 },
  { op: 'getRoute', path: orders, invalid: true, status: 400, code: 'invalid_request' },
  { op: 'getRoute', path: orders, query: { key: 'k'.repeat(1025) }, invalid: true, status: 400, code: 'invalid_key' },
  { op: 'getRoute', path: orders, query: { key: 'k'.repeat(5000) }, invalid: true, status: 414, code: 'uri_too_long' },
  { op: 'getRoute', path: { keyspace: 'invoices' }, query: { key: 'zz' }, status: 400, code: 'invalid_key' },
  { op: 'getRoute', path: orders, query: { key: 'melon' }, headers: { 'If-None-Match': (c) => c.etag }, status: 304 },
  { op: 'getRoute', path: orders, query: { key: 'melon', at_revision: 0 }, status: 404, code: 'keyspace_not_found' },
  { op: 'getRoute', path: orders, query: { key: 'melon', at_revision: changed }, status: 200 },
  { op: 'lookupRoutes', example: 'three', path: orders, status: 200 },
  { op: 'lookupRoutes', path: orders, body: () => ({ keys: [] }), status: 200 },
  { op: 'lookupRoutes', path: orders, body: () => ({ keys: ['a', 1] }), invalid: true, status: 400, code: 'invalid_request', pointer: '/keys/1' },
  { op: 'lookupRoutes', path: { keyspace: 'invoices' }, body: () => ({ keys: ['00', 'zz'] }), status: 400, code: 'invalid_key', pointer: '/keys/1' },
  { op: 'validateRoutes', path: orders, body: () => ({ routes: [] }), status: 200 },
  { op: 'listRoutes', path: orders, query: { start: 'h', end: 'z' }, status: 200 },
  { op: 'listRoutes', path: orders, query: { limit: 1 }, status: 200 },
  { op: 'validateRoutes', example: 'two', path: orders, body: (b, c) => ({ routes: [{ partition: c.first, epoch: c.epoch }, { partition: 9007199254740991, epoch: 1 }] }), status: 200 },
  { op: 'checkPartition', example: 'owner', path: first, body: (b, c) => ({ node: c.owner, epoch: c.epoch }), status: 200 },
  { op: 'checkPartition', path: first, body: (b, c) => ({ node: c.owner, epoch: c.epoch - 1 }), status: 409, code: 'stale_epoch' },
  { op: 'checkPartition', path: first, body: (b, c) => ({ node: c.owner, epoch: c.epoch + 1000 }), status: 409, code: 'future_epoch' },
  { op: 'checkPartition', path: first, body: (b, c) => ({ node: c.other, epoch: c.epoch }), status: 409, code: 'not_owner' },
  { op: 'updatePartition', example: 'pin', path: first, headers: { 'Idempotency-Key': 'contract-pin' }, status: 200, save: (b, c) => { c.patched = b; } },
  { op: 'getPartition', path: first, status: 200, check: sameAs('patched') },
  { op: 'updatePartition', example: 'limit', path: first, status: 200 },
  { op: 'updatePartition', example: 'lift', type: 'application/merge-patch+json', path: first, status: 200 },
  { op: 'updatePartition', example: 'pin', path: first, headers: { 'Idempotency-Key': 'contract-pin' }, status: 200, replayed: true, check: sameAs('patched') },
  { op: 'updatePartition', path: first, body: () => ({ rate_limit: { requests_per_s: 0 } }), invalid: true, status: 400, code: 'invalid_request', pointer: '/rate_limit/requests_per_s' },
  { op: 'movePartition', path: first, body: (b, c) => ({ from: c.owner, to: c.other }), status: 409, code: 'needs_staged_move' },
  { op: 'movePartition', example: 'empty', path: first, body: (b, c) => ({ ...b, from: c.owner, to: c.other, expect_epoch: c.epoch }), status: 202, save: (b, c) => {
    c.operation = b.id;
    c.moved = b.revision;
  } },
  { op: 'getOperation', path: { operation: (c) => c.operation }, status: 200 },
  { op: 'getOperation', path: { operation: 9007199254740991 }, status: 404, code: 'operation_not_found' },
  { op: 'explainBalancer', query: { keyspace: 'orders', partition: (c) => c.first, to: 'n1' }, status: 200 },
  { op: 'getOperationAuthority', path: { operation: (c) => c.operation }, status: 200},
  { op: 'getOperationAuthority', path: { operation: 9007199254740991 }, status: 404, code: 'operation_not_found' },
  { op: 'listOperations', query: { state: 'done', keyspace: 'orders', node: 'n1', kind: 'move' }, status: 200 },
  { op: 'movePartition', path: first, body: (b, c) => ({ from: c.owner, to: c.other, empty: true, expect_epoch: c.epoch }), status: 409, code: 'stale_epoch', check: shows('route') },
  { op: 'movePartition', path: first, body: (b, c) => ({ from: c.owner, to: c.other, empty: true }), status: 409, code: 'not_owner', check: shows('route') },
  { op: 'transferPartition', example: 'other', path: first, status: 409, code: 'needs_staged_move' },
  { op: 'transferPartition', path: first, body: () => ({ to: 'nobody' }), status: 404, code: 'node_not_found' },
  { op: 'addReplica', example: 'async', path: first, status: 409, code: 'needs_staged_move' },
  { op: 'removeReplica', example: 'guarded', path: { ...first, node: 'n2' }, body: () => ({ expect_epoch: 1 }), status: 409, code: 'stale_epoch' },
  { op: 'removeReplica', path: { ...first, node: 'n2' }, status: 409, code: 'needs_staged_move' },
  { op: 'removeReplica', path: { ...first, node: 'nobody' }, status: 404, code: 'node_not_found' },
  { op: 'splitPartition', path: first, body: () => ({ at: ['z'] }), status: 422, code: 'bad_split_key', pointer: '/at/0' },
  { op: 'splitPartition', path: first, body: () => ({ at: ['c', 'b'] }), status: 422, code: 'bad_split_key', pointer: '/at/1' },
  { op: 'splitPartition', example: 'two', path: first, body: (b) => ({ ...b, expect_epoch: 1 }), status: 409, code: 'stale_epoch' },
  { op: 'splitPartition', example: 'one', path: first, body: () => ({ at: ['c'] }), status: 200, save: (b, c) => {
    c.parent = b.parent;
    [c.left, c.right] = b.children.map((r) => r.partition);
    c.leftEpoch = b.children[0].epoch;
  } },
  { op: 'getPartition', path: { keyspace: 'orders', partition: (c) => c.parent }, status: 410, code: 'partition_retired', check: shows('routes') },
  { op: 'splitPartition', path: { keyspace: 'orders', partition: (c) => c.parent }, body: () => ({ at: ['b'] }), status: 409, code: 'stale_epoch', check: shows('routes') },
  { op: 'mergePartition', path: { keyspace: 'orders', partition: (c) => c.left }, body: (b, c) => ({ with: c.left }), status: 409, code: 'not_mergeable' },
  { op: 'mergePartition', example: 'next', path: { keyspace: 'orders', partition: (c) => c.left }, body: (b, c) => ({ with: c.right, expect_epoch: c.leftEpoch }), status: 200, save: (b, c) => { c.whole = b.route.partition; } },
  { op: 'getPartitionHistory', path: { keyspace: 'orders', partition: (c) => c.whole }, status: 200 },

  // What happened.
  { op: 'getMap', path: orders, status: 200, save: (b, c, h) => { c.mapTag = h.get('etag'); } },
  { op: 'getMap', path: orders, accept: 'application/x-ndjson', status: 200 },
  { op: 'getMap', path: orders, headers: { 'If-None-Match': (c) => c.mapTag }, status: 304 },
  { op: 'listChanges', path: orders, query: { since: changed }, status: 200 },
  { op: 'listChanges', path: orders, query: { since: changed, limit: 1, start: 'a', end: 'b' }, status: 200 },
  { op: 'listChanges', path: orders, query: { since: 9007199254740991 }, status: 503, code: 'behind' },
  { op: 'listChanges', path: orders, query: { since: changed, generation: 999 }, status: 410, code: 'compacted' },
  { op: 'watchChanges', path: orders, query: { since: changed }, status: 200 },
  { op: 'diffKeyspace', path: orders, query: { from: changed, to: (c) => c.moved }, status: 200 },
  { op: 'listWatchers', query: { behind: changed }, status: 200 },
  { op: 'listAudit', query: { limit: 5 }, status: 200 },
  { op: 'getBackup', status: 200 },

  // Servers.
  { op: 'transferLeadership', example: 'named', body: () => ({ to: 99 }), status: 404, code: 'server_not_found' },
  { op: 'transferLeadership', example: 'named', body: (b, c) => ({ to: c.server }), status: 200 },
  { op: 'addServer', example: 'observer', status: 201 },
  { op: 'transferLeadership', example: 'named', body: () => ({ to: 2 }), status: 409, code: 'not_a_voter' },
  { op: 'addServer', example: 'observer', status: 201 },
  { op: 'addServer', example: 'observer', body: (b) => ({ ...b, instance: '00000000000000000000000000000001' }), status: 409, code: 'server_exists' },
  { op: 'updateServer', example: 'observer', path: { server: 2 }, status: 200 },
  { op: 'updateServer', example: 'observer', path: { server: 99 }, status: 404, code: 'server_not_found' },
  { op: 'updateServer', path: { server: (c) => c.server }, body: () => ({ role: 'observer' }), status: 409, code: 'quorum_at_risk' },
  { op: 'removeServer', example: 'guarded', path: { server: 2 }, body: () => ({ expect_revision: 1 }), status: 409, code: 'stale_revision' },
  { op: 'removeServer', path: { server: 2 }, status: 200 },
  { op: 'takeSnapshot', status: 202 },

  // And away again.
  // Nodes with agents: n3 and n4 get a keyspace of their own, for the others take nothing new.
  { op: 'getSettings', status: 200 },
  { op: 'patchSettings', example: 'lease', status: 200 },
  { op: 'patchSettings', example: 'lease', type: 'application/merge-patch+json', status: 200 },
  { op: 'patchSettings', body: () => ({ lease_ms: 1000, heartbeat_ms: 900 }), status: 422, code: 'invalid_settings' },
  { op: 'getBalancer', status: 200 },
  { op: 'patchBalancer', example: 'faster', status: 200 },
  { op: 'patchBalancer', example: 'auto', status: 200 },
  { op: 'patchBalancer', body: () => ({ mode: null, thresholds: { low_ppm: 400000 } }), status: 422, code: 'invalid_settings', pointer: '/thresholds/low_ppm' },
  { op: 'patchBalancer', example: 'windows', status: 200 },
  { op: 'patchBalancer', body: () => ({ windows: [{ name: 'a', kind: 'freeze', time_zone: 'Europe/Atlantis', days: ['mon'], start: '08:00', end: '18:00' }] }), status: 422, code: 'invalid_settings', pointer: '/windows/0/time_zone' },
  { op: 'patchBalancer', body: () => ({ windows: [{ name: 'a', kind: 'freeze', from: '2026-12-24T12:00:00Z', to: '2026-12-27T00:00:00Z', until: 1 }] }), invalid: true, status: 400, code: 'invalid_request', pointer: '/windows/0/until' },
  { op: 'getBalancer', status: 200 },
  { op: 'patchBalancer', example: 'none', type: 'application/merge-patch+json', status: 200 },
  { op: 'pauseBalancer', example: 'hour', status: 200 },
  { op: 'pauseBalancer', body: () => ({}), invalid: true, status: 400, code: 'invalid_request', pointer: '/reason' },
  { op: 'getBalancer', status: 200 },
  { op: 'resumeBalancer', example: 'plain', status: 200 },
  { op: 'patchBalancer', body: () => ({ mode: 'off', guardrails: null }), status: 200 },
  { op: 'explainBalancer', query: { keyspace: 'orders', partition: 9007199254740991 }, status: 404, code: 'partition_not_found' },
  { op: 'explainBalancer', query: { keyspace: 'nowhere', partition: 1 }, status: 404, code: 'keyspace_not_found' },
  { op: 'listProposals', query: { state: 'open' }, status: 200 },
  { op: 'listProposals', query: { state: 'new' }, invalid: true, status: 400, code: 'invalid_request' },
  { op: 'getProposal', path: { proposal: 9007199254740991 }, status: 404, code: 'proposal_not_found' },
  { op: 'approveProposal', example: 'why', path: { proposal: 9007199254740991 }, status: 404, code: 'proposal_not_found' },
  { op: 'rejectProposal', example: 'why', path: { proposal: 9007199254740991 }, status: 404, code: 'proposal_not_found' },
  { op: 'patchBalancer', example: 'defaults', type: 'application/merge-patch+json', status: 200 },
  { op: 'patchBalancer', body: () => ({ budgets: { rack: { moves: 10001 } } }), status: 422, code: 'invalid_settings', pointer: '/budgets/rack/moves' },
  { op: 'patchBalancer', body: () => ({ budgets: { rack: { moves: '1' } } }), invalid: true, status: 400, code: 'invalid_request', pointer: '/budgets/rack/moves' },
  { op: 'registerNode', example: 'agent', path: { node: 'n3' }, status: 200, save: (b, c) => { c.third = b.session; } },
  { op: 'registerNode', path: { node: 'n4' }, body: () => ({ address: '10.0.0.4:9000' }), status: 200, save: (b, c) => { c.fourth = b.session; } },
  { op: 'renewLease', example: 'renew', path: { node: 'n3' }, body: (b, c) => ({ session: c.third }), status: 200 },
  { op: 'renewLease', path: { node: 'n3' }, body: () => ({ session: 9000000 }), status: 409, code: 'session_ended' },
  { op: 'createKeyspace', body: () => ({ name: 'loaded', scheme: 'range' }), status: 201 },
  { op: 'listPartitions', path: { keyspace: 'loaded' }, status: 200, save: (b, c) => { c.loaded = b.partitions[0]; } },
  { op: 'reportLoad', example: 'load', path: { node: 'n3' }, status: 202,
    body: (b, c) => ({ ...b, session: c.third,
      partitions: b.partitions.map((p) => ({ ...p, keyspace: 'loaded', partition: c.loaded.partition, epoch: c.loaded.epoch })) }) },
  { op: 'reportLoad', path: { node: 'n3' }, body: (b, c) => ({ session: c.third, interval_ms: 1000, seq: 1, partitions: [] }), status: 409, code: 'stale_report' },
  { op: 'getPartition', path: { keyspace: 'loaded', partition: (c) => c.loaded.partition }, status: 200 },
  { op: 'getNode', path: { node: 'n3' }, status: 200 },
  { op: 'getSkew', query: { keyspace: 'loaded' }, status: 200 },
  { op: 'getSkew', status: 200 },
  { op: 'simulateBalancer', example: 'zone', status: 200 },
  { op: 'simulateBalancer', example: 'grow', status: 200, check: shows('plan') },
  { op: 'simulateBalancer', body: () => ({ changes: { nodes_lost: ['nobody'] } }), status: 422, code: 'invalid_settings', pointer: '/changes/nodes_lost/0' },
  { op: 'simulateBalancer', body: () => ({ changes: { policy: { thresholds: { high_ppm: '1' } } } }), invalid: true, status: 400, code: 'invalid_request', pointer: '/changes/policy/thresholds/high_ppm' },
  { op: 'getHeatmap', query: { keyspace: 'loaded' }, status: 200, check: (b) => (b.rows.length > 0 ? [] : ['no rows']) },
  { op: 'getHeatmap', query: { keyspace: 'loaded', resource: 'size_bytes', from: '2026-01-01T00:00:00Z', to: '2999-01-01T00:00:00.5Z' }, status: 200 },
  { op: 'getHeatmap', query: { keyspace: 'nowhere' }, status: 404, code: 'keyspace_not_found' },
  { op: 'getHeatmap', invalid: true, status: 400, code: 'invalid_request' },
  { op: 'getHeatmap', query: { keyspace: 'loaded', resource: 'heat' }, invalid: true, status: 400, code: 'invalid_request' },
  { op: 'getHeatmap', query: { keyspace: 'loaded', from: 'yesterday' }, invalid: true, status: 400, code: 'invalid_request' },
  { op: 'getLoadSummary', status: 200 },
  { op: 'getLoadSummary', query: { page: 63 }, status: 200 },
  { op: 'getLoadSummary', query: { page: 64 }, invalid: true, status: 400, code: 'invalid_request' },
  { op: 'getSkew', query: { keyspace: 'nowhere' }, status: 404, code: 'keyspace_not_found' },
  { op: 'deleteKeyspace', path: { keyspace: 'loaded' }, query: { confirm: 'loaded' }, status: 200 },
  { op: 'cordonNode', example: 'why', path: { node: 'n1' }, status: 200 },
  { op: 'quarantineNode', example: 'why', path: { node: 'n2' }, status: 200 },
  { op: 'drainNode', example: 'why', path: { node: 'n1' }, status: 200 },
  { op: 'getNode', path: { node: 'n1' }, status: 200 },
  { op: 'getReplication', status: 200, check: shows('totals') },
  { op: 'getReplication', query: { keyspace: 'orders', limit: 1 }, status: 200, save: (b, c) => { c.lacking = b.next; } },
  { op: 'getReplication', query: { keyspace: 'nothing' }, status: 404, code: 'keyspace_not_found' },
  { op: 'createKeyspace', body: () => ({ name: 'agents', scheme: 'range', replicas: { sync: 1 } }), status: 201 },
  { op: 'uncordonNode', example: 'why', path: { node: 'n1' }, status: 200 },
  { op: 'unquarantineNode', example: 'why', path: { node: 'n2' }, status: 200 },
  { op: 'listPartitions', path: { keyspace: 'agents' }, status: 200, save: (b, c) => { c.theirs = b.partitions[0]; } },
  { op: 'listTasks', path: { node: (c) => c.theirs.primary.node }, query: { since: 1, wait_ms: 10 }, status: 200 },
  { op: 'listTasks', path: { node: 'n3' }, query: { session: 1 }, status: 409, code: 'session_ended' },
  // A move within it, and what can be done to one.
  { op: 'movePartition', path: { keyspace: 'agents', partition: (c) => c.theirs.partition }, status: 409, code: 'needs_staged_move',
    body: (b, c) => ({ to: 'n1' }) },
  { op: 'registerNode', path: { node: 'n5' }, body: () => ({ address: '10.0.0.5:9000' }), status: 200, save: (b, c) => { c.fifth = b.session; } },
  { op: 'movePartition', path: { keyspace: 'agents', partition: (c) => c.theirs.partition }, status: 422, code: 'bad_split_key',
    body: () => ({ to: 'n5', range: {} }) },
  { op: 'movePartition', example: 'part', path: { keyspace: 'agents', partition: (c) => c.theirs.partition }, status: 202,
    body: (b) => ({ ...b, to: 'n5' }), save: (b, c) => { c.part = b.id; } },
  { op: 'abortOperation', path: { operation: (c) => c.part }, status: 200 },
  { op: 'movePartition', path: { keyspace: 'agents', partition: (c) => c.theirs.partition }, status: 202,
    example: 'figures', body: (b) => ({ ...b, to: 'n5' }), save: (b, c) => { c.move = b.id; } },
  { op: 'reportOperation', example: 'ready', path: { operation: (c) => c.move }, status: 200, eventually: true,
    body: (b, c) => ({ ...b, node: 'n5', session: c.fifth }) },
  { op: 'reportOperation', path: { operation: (c) => c.move }, status: 409, code: 'stale_report',
    body: (b, c) => ({ node: 'n5', session: c.fifth, attempt: 99, stage: 'COPY', seq: 9 }) },
  { op: 'finishValidation', example: 'why', path: { operation: (c) => c.move }, status: 409 },
  { op: 'finishValidation', example: 'back', path: { operation: (c) => c.move }, status: 409 },
  { op: 'promoteCandidate', example: 'why', path: { operation: (c) => c.move }, status: 409 },
  { op: 'getOperationAuthority', path: { operation: (c) => c.move }, status: 200 },
  { op: 'abortOperation', example: 'why', path: { operation: (c) => c.move }, status: 200 },
  { op: 'retryOperation', example: 'why', path: { operation: (c) => c.move }, status: 200 },
  { op: 'abortOperation', path: { operation: (c) => c.move }, status: 200 },
  { op: 'changeInsync', example: 'dropped', path: { keyspace: 'agents', partition: (c) => c.theirs.partition }, status: 200,
    body: (b, c) => ({ session: c.theirs.primary.node === 'n3' ? c.third : c.fourth, epoch: c.theirs.epoch, insync: [] }) },
  { op: 'forceFailover', example: 'lost', path: { keyspace: 'agents', partition: (c) => c.theirs.partition }, status: 409, code: 'lease_held',
    body: (b, c) => ({ ...b, to: c.theirs.replicas.at(-1).node }) },
  { op: 'releaseSession', example: 'stop', path: { node: (c) => c.theirs.primary.node }, status: 200,
    body: (b, c) => ({ session: c.theirs.primary.node === 'n3' ? c.third : c.fourth }) },
  { op: 'forceFailover', example: 'lost', path: { keyspace: 'agents', partition: (c) => c.theirs.partition }, status: 202,
    body: (b, c) => ({ ...b, to: c.theirs.replicas.at(-1).node }) },
  { op: 'deleteKeyspace', path: { keyspace: 'agents' }, query: { confirm: 'agents' }, status: 200 },
  { op: 'listDuties', path: { node: (c) => c.theirs.replicas.at(-1).node }, status: 200, save: (b, c) => { c.duty = b.duties[0]; } },
  { op: 'completeDuty', example: 'deleted', path: { node: (c) => c.theirs.replicas.at(-1).node, duty: (c) => c.duty.id }, status: 200,
    body: (b, c) => ({ session: c.theirs.primary.node === 'n3' ? c.fourth : c.third, copy: c.duty.copy }) },

  { op: 'removeNode', path: { node: 'n1' }, example: 'guarded', body: () => ({ expect_revision: 1 }), status: 409, code: 'stale_revision' },
  { op: 'removeNode', path: { node: 'n2' }, status: 409, code: 'node_in_use' },
  { op: 'deleteKeyspace', path: orders, query: { confirm: 'other' }, status: 400, code: 'invalid_request' },
  { op: 'deleteKeyspace', path: orders, query: { confirm: 'orders' }, example: 'guarded', body: () => ({ expect_revision: 1 }), status: 409, code: 'stale_revision' },
  { op: 'deleteKeyspace', path: orders, query: { confirm: 'orders' }, status: 200 },
  { op: 'deleteKeyspace', path: { keyspace: 'sessions' }, query: { confirm: 'sessions' }, status: 200 },
  { op: 'deleteKeyspace', path: { keyspace: 'invoices' }, query: { confirm: 'invoices' }, status: 200 },
  { op: 'deleteKeyspace', path: { keyspace: 'invoices2' }, query: { confirm: 'invoices2' }, status: 200 },
  { op: 'removeNode', path: { node: 'n1' }, status: 200 },
  { op: 'removeNode', path: { node: 'n2' }, query: { force: 'true' }, status: 200 },
];
