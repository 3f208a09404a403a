// A worker's message over gRPC is bounded before it is decoded; and keys that another node has just created.
import { loadSync } from '@grpc/proto-loader';
import { describe, expect, it, onTestFinished } from 'vitest';
import { MessageBounds } from '../../../../src/api/grpc/message-bounds.ts';
import { createGrpcServer } from '../../../../src/api/grpc/server.ts';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { Keys } from '../../../../src/control/keys/keys.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { createGrpcLink } from '../../../../src/transport/grpc/grpc-link.ts';
import {
  PROTO_OPTIONS,
  PROTO_PATH,
  SERVICE_NAME,
} from '../../../../src/wire/link/worker-stream.ts';
import {
  MAX_CHUNKS,
  MAX_LISTED,
  MAX_REPORTS,
  MAX_VALUES,
} from '../../../../src/wire/message-bounds.ts';
import { ENDPOINT, startPlatform } from '../../../support/api/platform.ts';
import { fc } from '../../../support/properties.ts';

const definitions = loadSync(PROTO_PATH, PROTO_OPTIONS);
const service = definitions[SERVICE_NAME];
const method = service && !('format' in service) ? service['Open'] : undefined;
if (!method) throw new Error('the service has no such method');
const { requestDeserialize: decode, requestSerialize: encode } = method;
const bounds = new MessageBounds(definitions, 'ToPlatform');

const WORKER = { workerId: 'w', incarnation: 1 };
const REPORT = { jobId: 'j', attempt: 1, token: 't', seq: 1, kind: 'chunks', sizes: [2] };

function repeat<T>(count: number, element: T): T[] {
  return Array.from({ length: count }, () => element);
}

function varint(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...varint(value >>> 7)];
}

/** A field with a length, of a message. */
function field(number: number, content: Uint8Array): Buffer {
  return Buffer.concat([
    Buffer.from([...varint((number << 3) | 2), ...varint(content.length)]),
    content,
  ]);
}

describe('the bounds of a message', () => {
  const refs = (count: number) => repeat(count, { jobId: 'j', attempt: 1, token: 't' });
  it.each([
    [
      'reports',
      MAX_REPORTS,
      (n: number) => ({ reports: { ...WORKER, reports: repeat(n, REPORT) } }),
    ],
    ['outbox', MAX_LISTED, (n: number) => ({ hello: { ...WORKER, outbox: refs(n) } })],
    ['devices', MAX_LISTED, (n: number) => ({ hello: { ...WORKER, devices: repeat(n, {}) } })],
    ['requires', MAX_LISTED, (n: number) => ({ hello: { ...WORKER, requires: repeat(n, '') } })],
    ['held', MAX_LISTED, (n: number) => ({ credit: { ...WORKER, held: repeat(n, 't') } })],
    [
      'leases',
      MAX_LISTED,
      (n: number) => ({ renew: { ...WORKER, leases: repeat(n, { jobId: 'j' }) } }),
    ],
    ['outbox', MAX_LISTED, (n: number) => ({ bye: { ...WORKER, outbox: refs(n) } })],
    [
      'sizes',
      MAX_CHUNKS,
      (n: number) => ({
        reports: { reports: [{ ...REPORT, sizes: repeat(n - 1, 200) }, REPORT] },
      }),
    ],
  ])('limit %s to %i', (name, limit, build) => {
    expect(bounds.findExcess(encode({ call: 7, ...build(limit) }))).toBeUndefined();
    const more = encode({ call: 7, ...build(limit + 1) });
    expect(bounds.findExcess(more)).toBe(`${name} has more than ${limit} elements`);
    expect(bounds.readCall(more)).toBe(7);
  });

  it('skip a payload of any size', () => {
    const payload = Buffer.alloc(20_000_000);
    const message = encode({ call: 1, reports: { ...WORKER, reports: [REPORT], payload } });
    expect(bounds.findExcess(message)).toBeUndefined();
  });

  it('reject eight million empty reports without reading each', () => {
    const reports = Buffer.alloc(16_777_216, Buffer.from([0x1a, 0x00]));
    expect(bounds.findExcess(field(5, reports))).toBe('reports has more than 1000 elements');
  });

  it.each([
    ['calls in one message', Buffer.alloc(2_000_000, Buffer.from([0x2a, 0x00]))],
    ['unknown fields', field(5, Buffer.alloc(2_000_000, Buffer.from([0x78, 0x00])))],
    [
      'outcomes of one report',
      field(5, field(3, Buffer.alloc(2_000_000, Buffer.from([0x52, 0x00])))),
    ],
  ])('refuse a million %s', (_name, message) => {
    expect(bounds.findExcess(message)).toContain(`${MAX_VALUES}`);
  });

  it('refuse numbers that are not packed, too', () => {
    const sizes = Buffer.alloc(2 * (MAX_CHUNKS + 1), Buffer.from([0x40, 0x02]));
    expect(bounds.findExcess(field(5, field(3, sizes)))).toMatch(/^sizes /);
  });

  it.each([
    ['a group', [0x0b]],
    ['a message as a number', [0x28, 0x02, 0x1a, 0x00]],
    ['a field that is longer than the message', [0x2a, 0x05, 0x00]],
    ['a field that is longer than the one around it', [0x2a, 0x02, 0x1a, 0x05, 0, 0, 0, 0, 0]],
    ['a number without an end', Array.from({ length: 12 }, () => 0xff)],
  ])('refuse %s', (_name, bytes) => {
    expect(() => bounds.findExcess(Uint8Array.from(bytes))).toThrow();
  });

  it('accept no bytes that the decoder would expand', () => {
    const small = fc.uint8Array({ maxLength: 40 });
    const nested = small.map((bytes) => field(5, field(3, bytes)));
    fc.assert(
      fc.property(fc.oneof(small, nested), (bytes) => {
        try {
          bounds.findExcess(bytes);
        } catch {
          return;
        }
        // Each element has a tag of its own, or a number in a packed list.
        const decoded = JSON.stringify(tryDecode(bytes) ?? {});
        expect(decoded.split('{').length).toBeLessThanOrEqual(bytes.length + 2);
      }),
      { numRuns: 2_000 },
    );
  });
});

function tryDecode(bytes: Uint8Array): object | undefined {
  try {
    return decode(Buffer.from(bytes));
  } catch {
    return undefined;
  }
}

describe('a new key of another node', () => {
  const HELLO = {
    ...{ workerId: 'w1', incarnation: 1, protocol: 1, version: '1', slots: 1 },
    ...{ devices: [], outbox: [] },
  };

  /** A port whose keys are copies, which a look-up reads again. */
  async function start() {
    const { endpoints, queue } = await startPlatform();
    const store = openSqliteStore({ path: ':memory:' });
    onTestFinished(() => store.close());
    const leader = await Keys.open({ store, clock: systemClock });
    const keys = await Keys.open({ store, clock: systemClock });
    const looks = { count: 0 };
    const server = createGrpcServer({
      ...{ keys, endpoints, clock: systemClock, log: silentLog, host: '127.0.0.1', port: 0 },
      linkTo: (id) => queue.link(id),
      noteCrash: () => {},
      isClosing: () => queue.isClosing,
      lookUp: async () => {
        looks.count += 1;
        await keys.reload();
      },
    });
    const { url } = await server.start();
    onTestFinished(() => server.close());
    const sayHello = async (key: string) => {
      const link = createGrpcLink({ url, endpointId: ENDPOINT, key, log: silentLog });
      try {
        return await link.hello(HELLO);
      } finally {
        await link.close();
      }
    };
    return { leader, looks, sayHello };
  }

  it('looks up a key that it does not know, once', async () => {
    const { leader, looks, sayHello } = await start();
    const { key } = await leader.issue({ name: 'worker', scopes: [`worker:${ENDPOINT}`] });
    expect(await sayHello(key)).toMatchObject({ protocol: 1 });
    expect(await sayHello(key)).toMatchObject({ protocol: 1 });
    expect(looks.count).toBe(1);
  });

  it('refuses a key that nobody has, after a look', async () => {
    const { looks, sayHello } = await start();
    await expect(sayHello('mr_nobody')).rejects.toMatchObject({ code: 'unauthorized' });
    expect(looks.count).toBe(1);
  });
});
