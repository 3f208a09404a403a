import { describe, expect, it } from 'vitest';
import { isTransient } from '../../../../handlers/lib/retry-after.ts';
import { readServerEvents } from '../../../../handlers/lib/sse.ts';

describe('isTransient', () => {
  it('is true for overload and server errors, false for client errors', () => {
    expect([408, 425, 429, 500, 503].filter(isTransient)).toHaveLength(5);
    expect([200, 301, 400, 401, 404, 422].filter(isTransient)).toEqual([]);
  });
});

async function* cut(text: string, size: number) {
  const bytes = Buffer.from(text);
  for (let start = 0; start < bytes.length; start += size) {
    yield bytes.subarray(start, start + size);
  }
}

async function read(text: string, size = 1_000) {
  const events = [];
  for await (const { event, data } of readServerEvents(cut(text, size))) {
    events.push(event === 'message' ? data : `${event}=${data}`);
  }
  return events;
}

describe('readServerEvents', () => {
  const stream =
    '\uFEFF: hello\r\n\r\ndata: é€😀\r\ndata:two\r\n\r\n:\nevent: error\ndata: {}\nid: 7\nretry: 5\n\ndata\n\ndata:  x\r\rdata: last\n\n';
  const events = ['é€😀\ntwo', 'error={}', '', ' x', 'last'];

  it.each([1, 2, 3, 5, 7, 1_000])('reads the same from packets of %i bytes', async (size) => {
    expect(await read(stream, size)).toEqual(events);
  });

  it('drops the name of an event without data', async () => {
    expect(await read('event: a\n\ndata: b\n\n')).toEqual(['b']);
  });

  it('returns the last event even without its blank line', async () => {
    expect(await read('data: a\n\ndata: b')).toEqual(['a', 'b']);
  });

  it('returns nothing for an empty stream', async () => {
    expect(await read('')).toEqual([]);
  });

  it('refuses an event without end', async () => {
    const endless = (async function* () {
      for (;;) yield Buffer.alloc(1_000_000, 'x');
    })();

    await expect(readServerEvents(endless).next()).rejects.toThrow('16000000');
  });
});
