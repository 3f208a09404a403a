// Answers in pieces: small ones are joined, large ones are not copied, and a client that has gone costs nothing.
import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import fastify, { type FastifyInstance } from 'fastify';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  joinAsArray,
  joinSmall,
  sendBytes,
  sendShared,
} from '../../../../src/api/http/byte-reply.ts';
import { Flows } from '../../../../src/api/limits/flows.ts';
import { type Clock, ManualClock, systemClock } from '../../../../src/base/clock.ts';

const ofSize = (bytes: number, fill: number) => Buffer.alloc(bytes, fill);

function createApp({ clock = systemClock }: { clock?: Clock } = {}): FastifyInstance {
  const app = fastify();
  onTestFinished(() => app.close());
  const flows = new Flows({
    ...{ clock, maxInFlightBytes: 1_048_576, maxUserInFlightBytes: 1_048_576 },
    ...{ maxWorkerInFlightBytes: 1_048_576, inFlightWaitMs: 60_000, transferMs: 60_000 },
  });
  return app.decorate('flows', flows);
}

describe('joined pieces', () => {
  it('are the same bytes in order', () => {
    const pieces = [3, 70_000, 1, 40_000, 40_000, 0, 65_536, 65_537, 5].map(ofSize);
    const joined = [...joinSmall(pieces)];
    expect(Buffer.concat(joined)).toEqual(Buffer.concat(pieces));
  });

  it('are few after many small ones', () => {
    const elements = Array.from({ length: 10_000 }, () => Buffer.from('{"output":1,"metrics":{}}'));
    const joined = [...joinSmall(joinAsArray(elements))];
    expect(joined.length).toBeLessThan(5);
    expect(JSON.parse(Buffer.concat(joined).toString())).toHaveLength(10_000);
  });

  it('keep a large one without a copy', () => {
    const large = ofSize(100_000, 1);
    expect([...joinSmall([ofSize(1, 0), large, ofSize(1, 2)])]).toContain(large);
  });
});

it('leaves no timer of a large answer to a disconnected client', async () => {
  let timers = 0;
  const clock: Clock = {
    now: () => systemClock.now(),
    after(ms, act) {
      timers += 1;
      const cancel = systemClock.after(ms, act);
      return () => {
        timers -= 1;
        cancel();
      };
    },
  };
  const bytes = 1_048_576;
  const app = createApp({ clock });
  const answered = new Promise<void>((resolve) => {
    app.get('/', async (_request, reply) => {
      socket.destroy();
      await once(reply.raw, 'close');
      sendShared(reply, { mediaType: 'text/plain', pieces: [Buffer.alloc(bytes)] });
      resolve();
      return reply;
    });
  });
  await app.listen({ port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const socket = connect(port, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await answered;
  expect(timers).toBe(0);
});

it('sends an answer of several pieces whole', async () => {
  const app = createApp();
  app.get('/', (_request, reply) =>
    sendBytes(reply, { mediaType: 'text/plain', pieces: [Buffer.from('a'), ofSize(200_000, 98)] }),
  );
  const url = await app.listen({ port: 0 });
  const answer = await fetch(url);
  expect(answer.headers.get('content-type')).toBe('text/plain');
  expect(await answer.text()).toBe(`a${'b'.repeat(200_000)}`);
});

it('refuses a large answer without a wait while the budget is used up', async () => {
  const app = createApp({ clock: new ManualClock() });
  const errors: unknown[] = [];
  app.setErrorHandler((error, _request, reply) => {
    errors.push(error);
    return reply.code(503).send();
  });
  app.get('/', async (request, reply) => {
    const transfer = { bytes: 1_000_000, moved: () => 0, drop: () => {} };
    await app.flows.claim(request, transfer, new AbortController().signal);
    return sendBytes(reply, { mediaType: 'text/plain', pieces: [ofSize(100_000, 98)] });
  });
  await app.inject('/');
  expect(errors).toMatchObject([{ code: 'unavailable' }]);
});
