// A third-party worker: it implements docs/protocol.md over plain HTTP, one job at a time, with one
// optional fault. `node odd-worker.js [oddity]`.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

const oddity = process.argv[2] ?? 'none';
const { MILLRACE_ENDPOINT, MILLRACE_KEY, MILLRACE_URL } = process.env;
const self = { workerId: `odd-${process.pid}`, incarnation: Date.now() };
/** Leases by token, each with the function that stops its job. */
const held = new Map();
let isLeaving = false;
process.on('SIGTERM', () => {
  if (oddity === 'exits without bye') process.exit(0);
  isLeaving = true;
});

async function call(verb, body, mediaType = 'application/json') {
  const response = await fetch(`${MILLRACE_URL}/v2/${MILLRACE_ENDPOINT}/worker/${verb}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${MILLRACE_KEY}`,
      'content-type': mediaType,
      'millrace-worker': self.workerId,
      'millrace-incarnation': String(self.incarnation),
    },
    body: Buffer.isBuffer(body) ? body : JSON.stringify({ ...self, ...body }),
  });
  const bytes = Buffer.from(await response.arrayBuffer());
  if (!response.ok)
    throw Object.assign(new Error(`${verb}: ${bytes}`), { status: response.status });
  return bytes;
}

/** Repeats the call until the platform answers. */
async function persist(...args) {
  for (;;) {
    try {
      return await call(...args);
    } catch (error) {
      const { code } = error.status === 409 ? JSON.parse(error.message.replace(/^\w+: /, '')) : {};
      if (code === 'unknown_worker') await call('hello', hello);
      else if (error.status >= 400 && error.status < 500) throw error;
      else await sleep(100);
    }
  }
}

const slots = 1;
const hello = { protocol: 1, version: '1', slots, devices: [], outbox: [] };

function decodeFrames(message) {
  const frames = [];
  for (let at = 0; at < message.length; ) {
    const headerEnd = at + 8 + message.readUInt32BE(at);
    const bodyEnd = headerEnd + message.readUInt32BE(at + 4);
    const header = JSON.parse(message.toString('utf8', at + 8, headerEnd));
    frames.push({ header, body: message.subarray(headerEnd, bodyEnd) });
    at = bodyEnd;
  }
  return frames;
}

async function report(header, body) {
  const text = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(8);
  prefix.writeUInt32BE(text.length, 0);
  prefix.writeUInt32BE(body.length, 4);
  const args = ['report', Buffer.concat([prefix, text, body]), 'application/vnd.millrace.frames'];
  if (oddity === 'does not repeat reports') await call(...args).catch(() => {});
  else await persist(...args);
}

async function runJob({ attempt, executionTimeoutMs, jobId, token }, input) {
  const lease = { jobId, attempt, token };
  const stop = Promise.withResolvers();
  held.set(token, { jobId, end: stop.resolve, isStopping: false });
  let seq = 0;
  const beganAt = Date.now();
  const timer = setTimeout(() => stop.resolve('timed_out'), executionTimeoutMs);
  const result = act(JSON.parse(input), (first, chunk) => {
    const sizes = [chunk.length];
    return report({ ...lease, seq: ++seq, kind: 'chunks', first, sizes }, chunk);
  });
  const end = await Promise.race([result, stop.promise]);
  clearTimeout(timer);
  const executionMs = Date.now() - beganAt;
  const stopped = 'signal';
  const error = { code: 'execution_timeout', message: 'too long' };
  const words = {
    cancelled: { kind: 'cancelled', executionMs, stopped },
    timed_out: { kind: 'timed_out', executionMs, stopped, error },
  };
  const outcome = words[end] ?? { executionMs, ...end.outcome };
  if (end !== 'lost') {
    await report({ ...lease, seq: ++seq, kind: 'outcome', outcome }, end.body ?? Buffer.alloc(0));
  }
  held.delete(token);
}

async function act(input, yieldChunk) {
  switch (input.do) {
    case 'echo':
      await sleep(input.ms ?? 0);
      return {
        outcome: { kind: 'completed', output: 'value' },
        body: Buffer.from(JSON.stringify(oddity === 'changes outputs' ? 'odd' : input.value)),
      };
    case 'stream':
      for (let index = 0; index < input.count; index++) {
        const output = { index, text: 'x'.repeat(input.bytes) };
        await yieldChunk(index, Buffer.from(JSON.stringify({ output, metrics: {} })));
      }
      return { outcome: { kind: 'completed', output: 'chunks' } };
    case 'fail': {
      const error = { code: 'handler_error', message: input.message };
      return { outcome: { kind: 'failed', retry: 'default', error } };
    }
    default:
      return new Promise(() => {});
  }
}

async function renewForEver(waitMs) {
  for (;;) {
    const leases = [...held].map(([token, { isStopping, jobId }]) => {
      return { jobId, token, stopping: isStopping };
    });
    const { ended } = JSON.parse(await persist('renew', { waitMs, leases }));
    for (const { token, verdict } of ended) {
      const lease = held.get(token);
      if (!lease || oddity === 'ignores cancels') continue;
      lease.isStopping = true;
      lease.end(verdict);
    }
  }
}

const { renewEveryMs, takeWaitMs } = JSON.parse(await persist('hello', hello));
void renewForEver(renewEveryMs);
while (!isLeaving) {
  const takeId = oddity === 'reuses one takeId' ? 'the-one' : randomUUID();
  const max = oddity === 'requests too many jobs' ? slots + 1 : slots;
  const take = { takeId, max, waitMs: Math.min(takeWaitMs, 500), held: [...held.keys()] };
  const jobs = decodeFrames(await persist('take', take));
  await Promise.all(jobs.map(({ body, header }) => runJob(header, body)));
}
await persist('bye', { reason: 'drained', outbox: [] });
process.exit(0);
