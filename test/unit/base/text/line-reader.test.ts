// Lines of a stream, in whatever pieces they come.
import { PassThrough, Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { iterateLines, readLines } from '../../../../src/base/text/line-reader.ts';

async function read(pieces: readonly (string | Buffer)[], maxChars = 100): Promise<string[]> {
  const stream = new PassThrough();
  const lines: string[] = [];
  readLines(stream, { maxChars, onLine: (line) => lines.push(line) });
  for (const piece of pieces) stream.write(piece);
  stream.end();
  await new Promise((resolve) => stream.once('close', resolve));
  return lines;
}

describe('readLines', () => {
  it('joins pieces, also inside a character', async () => {
    const [first, rest] = [Buffer.from('é').subarray(0, 1), Buffer.from('é').subarray(1)];
    expect(await read(['a', 'b\nc', first, rest, '\r\n\nlast'])).toEqual(['ab', 'cé', '', 'last']);
  });

  it('truncates long lines, so that no line fills the memory', async () => {
    expect(await read(['x'.repeat(25), '\ny'], 10)).toEqual([
      'x'.repeat(10),
      'x'.repeat(10),
      'xxxxx',
      'y',
    ]);
  });

  it('keeps a line of exactly the limit', async () => {
    expect(await read(['x'.repeat(10), '\ny\n'], 10)).toEqual(['x'.repeat(10), 'y']);
  });
});

describe('iterateLines', () => {
  const iterate = (pieces: readonly (string | Buffer)[]) =>
    Array.fromAsync(iterateLines(Readable.from(pieces)));

  it('ends a line only at a line feed', async () => {
    const text = '\ufeffa\u2028b\u2029c\u0085d\r\n\ne\rf\n\ufeffg';
    const lines = ['a\u2028b\u2029c\u0085d', '', 'e\rf', '\ufeffg'];
    expect(await iterate([Buffer.from(text)])).toEqual(lines);
    const bytes = Array.from(Buffer.from(text), (byte) => Buffer.from([byte]));
    expect(await iterate(bytes)).toEqual(lines);
  });

  it('refuses a line that is too long, at once', async () => {
    let sent = 0;
    function* send() {
      yield `${'y'.repeat(10)}\n`;
      for (;;) {
        sent++;
        yield 'xxx';
      }
    }
    const lines: string[] = [];
    const read = async () => {
      for await (const line of iterateLines(Readable.from(send()), 10)) lines.push(line);
    };
    await expect(read()).rejects.toThrow('a line has more than 10 characters');
    expect(lines).toEqual(['y'.repeat(10)]);
    expect(sent).toBeLessThan(30);
  });

  it('has no last line after a line feed', async () => {
    expect(await iterate([])).toEqual([]);
    expect(await iterate(['a', '\n', 'b\n'])).toEqual(['a', 'b']);
  });
});
