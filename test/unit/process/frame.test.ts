// Frames between worker and model process: whatever the pieces in which they arrive.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  attachBytes,
  detachBytes,
  encodeFrame,
  type Frame,
  FrameError,
  FrameReader,
} from '../../../src/process/frame.ts';
import { parseMessage } from '../../../src/process/messages.ts';

function readAll(bytes: Buffer, cuts: readonly number[] = [], maxBytes = 1e6): Frame[] {
  const frames: Frame[] = [];
  const reader = new FrameReader(maxBytes, (frame) => frames.push(frame));
  let at = 0;
  for (const cut of [...cuts.toSorted((a, b) => a - b), bytes.length]) {
    const end = Math.min(cut, bytes.length);
    reader.push(bytes.subarray(at, end));
    at = end;
  }
  return frames;
}

function encodeValue(value: unknown): Buffer {
  const { attachments, json, pieces } = detachBytes(value, 'input');
  const head = `{"type":"result","id":1,"attachments":${JSON.stringify(attachments)},"value":${json}}`;
  return Buffer.concat(encodeFrame(head, pieces));
}

/** Bytes compare by content, whatever their class. */
function normalize(value: unknown): unknown {
  if (value instanceof Uint8Array) return { bytes: [...value] };
  if (Array.isArray(value)) return value.map(normalize);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, normalize(each)]));
}

const valueWithBytes = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.uint8Array({ maxLength: 40 }),
    fc.jsonValue({ maxDepth: 1, noUnicodeString: false }),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(fc.string(), tie('value'), { maxKeys: 4 }),
  ),
})).value;

describe('a frame', () => {
  it('arrives as it was sent, in pieces of any size', () => {
    fc.assert(
      fc.property(
        fc.array(valueWithBytes, { maxLength: 4 }),
        fc.array(fc.nat(500)),
        (values, cuts) => {
          const stream = Buffer.concat(values.map(encodeValue));
          const found = readAll(stream, cuts).map(parseMessage);
          const plain = JSON.stringify(normalize(values));
          expect(
            JSON.stringify(normalize(found.map((each) => 'value' in each && each.value))),
          ).toBe(plain);
        },
      ),
    );
  });

  it('has its attachments at addresses that can be viewed as numbers', () => {
    const floats = [new Uint8Array(3), new Float64Array([1.5, 2.5])];
    const [frame] = readAll(encodeValue(floats), [13, 21]);
    const value = frame && parseMessage(frame);
    const bytes =
      value?.type === 'result' && Array.isArray(value.value) ? value.value[1] : undefined;
    expect(new Float64Array(bytes.buffer, bytes.byteOffset, 2)).toEqual(
      new Float64Array([1.5, 2.5]),
    );
  });

  it('is refused above the limit before its content arrives', () => {
    const prefix = Buffer.alloc(8);
    prefix.writeUInt32BE(10, 0);
    prefix.writeUInt32BE(4_000_000_000, 4);
    expect(() => readAll(prefix)).toThrow('a frame is 4000000018 bytes; maxFrameBytes is 1000000');
  });
});

describe('a frame that breaks the protocol is refused with its value', () => {
  const body = Buffer.alloc(16);
  it.each([
    ['{"type":"result","id":1,', 'the head of a frame is not JSON'],
    ['[]', 'a head is []'],
    ['{"type":"results"}', 'has the type "results"'],
    ['{"type":"result","id":"1"}', 'id is "1"; it must be a whole number'],
    ['{"type":"ready","protocol":1,"handlers":[1]}', 'handlers is [1]'],
    ['{"type":"item","id":1,"metrics":{"add":{"n":"1"}}}', 'metrics is {"add":{"n":"1"}}'],
    ['{"type":"log","message":1}', 'message is 1'],
    ['{"type":"error","id":1,"error":"x"}', 'error is "x"'],
  ])('%s', (head, message) => {
    const [bytes] = encodeFrame(head);
    expect(() => readAll(Buffer.from(bytes ?? [])).map(parseMessage)).toThrow(message);
  });

  it('a value that is nested too deep to be shown', () => {
    const depth = 100_000;
    const [bytes] = encodeFrame(`{"type":${'['.repeat(depth)}${']'.repeat(depth)}}`);
    const read = () => readAll(Buffer.from(bytes ?? [])).map(parseMessage);
    expect(read).toThrow(FrameError);
    expect(read).toThrow('has the type object that cannot be shown');
  });

  it.each([
    [[{ path: ['a'], bytes: 20 }], 'attachments exceed the frame'],
    [[{ path: ['a'], bytes: 4 }], 'a frame has 16 bytes of attachments, but describes 8'],
    [[{ path: ['b'], bytes: 16 }], 'has the path ["b"], which is not null'],
    [[{ path: ['a', 'b'], bytes: 16 }], 'has the path ["a","b"], which is not null'],
    [[{ path: ['__proto__'], bytes: 16 }], 'has the path ["__proto__"]'],
  ])('attachments %j', (attachments, message) => {
    expect(() => attachBytes({ a: null }, attachments, body)).toThrow(FrameError);
    expect(() => attachBytes({ a: null }, attachments, body)).toThrow(message);
  });
});

it('refuses a value that is no JSON with its path, beside bytes too', () => {
  expect(() => detachBytes({ a: [1n], b: new Uint8Array(2) }, 'input')).toThrow('input.a[0]');
  const cycle: Record<string, unknown> = { bytes: new Uint8Array(1) };
  cycle['self'] = cycle;
  expect(() => detachBytes(cycle, 'input')).toThrow('input.self');
});
