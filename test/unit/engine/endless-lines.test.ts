// Lines of any length in what engines send: a log is read to its end, a document is refused.
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { ChangeFeed, readDocuments, readLogTail } from '../../../src/engine/answers.ts';
import { joinPieces } from '../../../src/engine/docker/docker-client.ts';
import { countKept } from '../../support/garbage.ts';

const MB = 1_048_576;
const LONG = Buffer.alloc(MB, 'x');

/** One line of 256 MB without its line feed. */
async function* sendLongLine(): AsyncGenerator<Buffer> {
  for (let sent = 0; sent < 256; sent++) yield LONG;
}

function head(output: 1 | 2, bytes: number): Buffer {
  const header = Buffer.alloc(8);
  header.writeUInt8(output);
  header.writeUInt32BE(bytes, 4);
  return header;
}

function piece(output: 1 | 2, text: string): Buffer {
  return Buffer.concat([head(output, Buffer.byteLength(text)), Buffer.from(text)]);
}

async function join(...answer: Buffer[]): Promise<string> {
  return Buffer.concat(await Array.fromAsync(joinPieces(iterate(answer)))).toString();
}

async function* iterate(pieces: readonly Buffer[]): AsyncGenerator<Buffer> {
  yield* pieces;
}

describe("an engine's pieces of a log", () => {
  const sent = [piece(1, 'eins\n'), piece(2, ''), piece(2, 'zwö'), piece(1, 'lf\n')];

  it('are joined in their order, however they arrive', async () => {
    const all = Buffer.concat(sent);
    const bytes = Array.from(all, (byte) => Buffer.from([byte]));
    for (const answer of [sent, [all], bytes]) expect(await join(...answer)).toBe('eins\nzwölf\n');
  });

  it('are read up to an incomplete end', async () => {
    const cut = Buffer.concat([piece(1, 'whole\n'), piece(1, 'cut off\n')]);
    expect(await join(cut.subarray(0, -4))).toBe('whole\ncut ');
    expect(await join(cut.subarray(0, 17))).toBe('whole\n');
    expect(await join()).toBe('');
  });
});

describe('the end of a log', () => {
  it('is read behind a line of 256 MB, which is not kept in memory', async () => {
    async function* send() {
      yield head(1, 256 * MB);
      yield* sendLongLine();
      yield piece(2, '\nend\n');
    }
    const pieces: WeakRef<Buffer>[] = [];
    let mostKept = 0;
    async function* watch(log: AsyncIterable<Buffer>) {
      for await (const each of log) {
        pieces.push(new WeakRef(each));
        if (pieces.length % 64 === 0) mostKept = Math.max(mostKept, await countKept(pieces));
        yield each;
      }
    }
    const tail = await readLogTail(async () => watch(joinPieces(send())), 10);
    expect(Buffer.from(tail).toString()).toBe('xxxxx\nend\n');
    expect(pieces.length).toBeGreaterThan(256);
    // The piece that arrives, and the one before it.
    expect(mostKept).toBeLessThanOrEqual(2);
  });

  it('is asked for again with more lines, if the first ones do not fill the bytes', async () => {
    const asked: number[] = [];
    const tail = await readLogTail(async (lines) => {
      asked.push(lines);
      return iterate(Array.from({ length: Math.min(lines, 100) }, (_, n) => Buffer.from(`${n}\n`)));
    }, 640);
    expect(asked).toEqual([10, 640]);
    expect(Buffer.from(tail).toString()).toMatch(/^0\n1\n.*\n99\n$/s);
    expect(await readLogTail(async () => undefined, 640)).toHaveLength(0);
  });
});

it('opens the stream of events again after an event of 256 MB', async () => {
  let received = 0;
  async function* count(events: AsyncIterable<Buffer>) {
    for await (const each of events) {
      received += each.length;
      yield each;
    }
  }
  const streams = [count(sendLongLine()), iterate([Buffer.from('{"id":"pod"}\n')])];
  const failures: unknown[] = [];
  const changed = Promise.withResolvers<string>();
  const feed = new ChangeFeed({
    async read(stream) {
      stream.opened();
      for await (const document of readDocuments(streams.shift() ?? iterate([]))) {
        stream.changed(JSON.stringify(document));
      }
    },
    onFailure: (error) => failures.push(error),
    clock: systemClock,
  });
  feed.listen(changed.resolve);
  expect(await changed.promise).toBe('{"id":"pod"}');
  feed.close();
  expect(failures).toEqual([new Error(`a line has more than ${4 * MB} characters`)]);
  expect(received).toBeLessThan(8 * MB);
});
