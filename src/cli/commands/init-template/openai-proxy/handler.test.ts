import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { afterEach, beforeEach, test } from 'node:test';
import { createHarness } from 'millrace/testing';
import handler from './handler.ts';

let server: Server;

beforeEach(async () => {
  server = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const content of ['One', ' word']) {
      response.write(`data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`);
    }
    const last = { choices: [{ delta: {}, finish_reason: 'stop' }] };
    response.end(`data: ${JSON.stringify(last)}\n\ndata: [DONE]\n\n`);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  process.env['OPENAI_BASE_URL'] = `http://127.0.0.1:${address.port}/v1`;
  process.env['OPENAI_API_KEY'] = 'any';
});

afterEach(() => {
  server.close();
});

test('streams the answer of the server', async () => {
  await using harness = await createHarness({ handler });
  const job = await harness.submit({ model: 'm', messages: [{ role: 'user', content: 'Hi' }] });
  const pieces = [];
  for await (const { output } of job.chunks()) pieces.push(output);
  assert.deepEqual(pieces, ['One', ' word']);
  assert.partialDeepStrictEqual(await job.result(), { text: 'One word' });
});

test('refuses a job without a question', async () => {
  await using harness = await createHarness({ handler });
  await assert.rejects(harness.run({ model: 'm' }), /messages or prompt/);
});
