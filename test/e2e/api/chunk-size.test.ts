// The limit of a chunk at the byte, for all kinds of values, in multi-byte text; and how much one
// answer holds.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { reassemble } from '../../../src/client.ts';
import { EndpointCaller, type StreamAnswer } from '../../support/endpoint-caller.ts';
import { makeValue } from '../../support/handlers/api-sizes.ts';
import { PlatformProcess } from '../../support/processes.ts';

const CHUNK_LIMIT = 1_000_000;
const FRAME_BYTES = '{"output":,"metrics":{}}'.length;
const ANSWER_LIMIT = 8 * 1_048_576;

let platform: PlatformProcess;
let sizes: EndpointCaller;

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: ['sizes'] });
  sizes = new EndpointCaller(platform, 'sizes');
  platform.startWorker('sizes', 'api-sizes.ts', '--unsupervised');
});
afterAll(() => platform.close());

type Chunks = StreamAnswer['chunks'];

const byteLength = (value: unknown) => Buffer.byteLength(JSON.stringify(value));

async function readAll(id: string): Promise<Chunks[]> {
  const pages: Chunks[] = [];
  let after: string | null = '0';
  for (;;) {
    const page: StreamAnswer = await sizes.stream(id, `?after=${after}`);
    if (page.chunks.length > 0) pages.push(page.chunks);
    else if (page.status === 'COMPLETED') return pages;
    after = page.next;
  }
}

describe.each(['text', 'array', 'object'] as const)('a chunk with a large %s', (shape) => {
  it.each([
    [CHUNK_LIMIT - 1, 1],
    [CHUNK_LIMIT, 1],
    [CHUNK_LIMIT + 1, 2],
  ])('arrives with %i bytes in %i pieces and is reassembled', async (bytes, pieces) => {
    const wanted = { bytes: bytes - FRAME_BYTES, shape, yields: 1 };
    const { id } = await sizes.runsync(wanted);
    const [chunks = []] = await readAll(id);
    expect(chunks).toHaveLength(pieces);
    if (pieces === 1) expect(byteLength(chunks[0])).toBe(bytes);
    for (const chunk of chunks) expect(byteLength(chunk)).toBeLessThanOrEqual(CHUNK_LIMIT);
    expect(JSON.stringify(reassemble(chunks)) === JSON.stringify([makeValue(wanted)])).toBe(true);
  });

  it('is split in the same way if it is returned instead of yielded', async () => {
    const wanted = { bytes: 3_000_000, shape };
    const { id } = await sizes.runsync(wanted);
    const chunks = (await readAll(id)).flat();
    expect(chunks.length).toBeGreaterThan(3);
    for (const chunk of chunks) expect(byteLength(chunk)).toBeLessThanOrEqual(CHUNK_LIMIT);
    expect(JSON.stringify(reassemble(chunks)) === JSON.stringify([makeValue(wanted)])).toBe(true);
  });
});

describe('one answer', () => {
  it('contains at most 8 MB of chunks, and the next answer has the rest', async () => {
    const wanted = { bytes: 900_000, shape: 'text', yields: 12 } as const;
    const { id } = await sizes.runsync(wanted);
    const pages = await readAll(id);
    expect(pages.length).toBeGreaterThan(1);
    for (const page of pages) {
      const bytes = page.reduce((sum, chunk) => sum + byteLength(chunk), 0);
      expect(bytes).toBeLessThanOrEqual(ANSWER_LIMIT);
    }
    const value = makeValue(wanted);
    const seen = pages.flat().map(({ output }) => output === value);
    expect(seen).toEqual(Array(12).fill(true));
  });
});
