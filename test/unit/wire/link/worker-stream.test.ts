import { loadSync } from '@grpc/proto-loader';
import { describe, expect, it } from 'vitest';
import {
  cutPayload,
  openEnvelope,
  PayloadAssembly,
  PayloadError,
  PROTO_OPTIONS,
  PROTO_PATH,
  readBodySizes,
  SERVICE_NAME,
} from '../../../../src/wire/link/worker-stream.ts';
import { fc } from '../../../support/properties.ts';

const bytes = (text: string) => Buffer.from(text);

describe('a payload', () => {
  it('is joined from pieces of any size', () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 8 }),
        fc.integer({ min: 1, max: 50 }),
        (bodies, maxBytes) => {
          const assembly = new PayloadAssembly(bodies.map((body) => body.length));
          const pieces = [...cutPayload(bodies, maxBytes)];
          for (const piece of pieces) {
            expect(piece.length).toBeLessThanOrEqual(maxBytes);
            assembly.add(piece);
          }
          expect(pieces.length).toBe(Math.max(1, Math.ceil(assembly.total / maxBytes)));
          expect(assembly.isWhole).toBe(true);
          const out = assembly.bodies().map((body) => Buffer.from(body));
          expect(out).toEqual(bodies.map((body) => Buffer.from(body)));
        },
      ),
    );
  });

  it('is not copied if a piece contains one body or part of it', () => {
    const body = bytes('abcdef');
    for (const piece of cutPayload([body], 4)) expect(piece.buffer).toBe(body.buffer);
    const assembly = new PayloadAssembly([2, 4]);
    assembly.add(body);
    for (const part of assembly.bodies()) expect(part.buffer).toBe(body.buffer);
  });

  it('is not whole before its last byte', () => {
    const assembly = new PayloadAssembly([2, 1]);
    assembly.add(bytes('ab'));
    expect(assembly.isWhole).toBe(false);
    assembly.add(bytes('c'));
    expect(assembly.isWhole).toBe(true);
  });

  it('is refused with more bytes than announced', () => {
    const assembly = new PayloadAssembly([2]);
    assembly.add(bytes('a'));
    expect(() => assembly.add(bytes('bc'))).toThrow(PayloadError);
  });
});

describe('a message', () => {
  const service = loadSync(PROTO_PATH, PROTO_OPTIONS)[SERVICE_NAME];
  const method = service && !('format' in service) ? service['Open'] : undefined;
  const decode = (encoded: Buffer) => {
    if (!method) throw new Error('no such method');
    return openEnvelope(method.requestDeserialize(encoded));
  };

  it('is decoded into its call, kind, content and payload', () => {
    const reports = { workerId: 'w', incarnation: 1_763_000_000_000, reports: [], payload: 'YQ==' };
    const encoded = method?.requestSerialize({ call: 7, reports }) ?? Buffer.alloc(0);
    expect(decode(encoded)).toMatchObject({
      call: 7,
      kind: 'reports',
      content: { workerId: 'w', incarnation: 1_763_000_000_000, reports: [] },
      payload: bytes('a'),
    });
  });

  it('has an unknown kind if it is newer, and newer members are ignored', () => {
    // Field 1 is the call; 40 is a message of a later version, 41 a number.
    const unknown = Buffer.from([0x08, 0x05, 0xc2, 0x02, 0x00, 0xc8, 0x02, 0x01]);
    expect(decode(unknown)).toMatchObject({ call: 5, kind: undefined });
    const hello = method?.requestSerialize({ call: 6, hello: { workerId: 'w' } }) ?? unknown;
    expect(decode(Buffer.concat([hello, unknown.subarray(5)]))).toMatchObject({
      call: 6,
      kind: 'hello',
      content: { workerId: 'w', outbox: [], requires: [] },
    });
  });

  it('names the sizes of its bodies', () => {
    expect(readBodySizes([{ bodyBytes: 3 }, {}, { bodyBytes: 0 }])).toEqual([3, 0, 0]);
  });
});
