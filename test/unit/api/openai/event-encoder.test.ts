// The texts of a handler as server-sent events: whole lines, and a stream of events that is cut anywhere.
import { describe, expect, it } from 'vitest';
import { FailedStream } from '../../../../src/api/openai/answers.ts';
import { EventEncoder } from '../../../../src/api/openai/stream.ts';

function encodeAll(chunks: readonly unknown[]) {
  const encoder = new EventEncoder();
  const all = [...chunks.map((chunk) => encoder.encode(chunk)), encoder.end()];
  const isDone = all.some((one) => one.isDone);
  return { text: all.map(({ text }) => text).join(''), isDone };
}

/** As a worker cuts bytes: a character whose bytes are cut comes with its last byte. */
function cutBytes(text: string, size: number): string[] {
  const bytes = Buffer.from(text);
  const decoder = new TextDecoder();
  const pieces: string[] = [];
  for (let at = 0; at < bytes.length; at += size) {
    pieces.push(decoder.decode(bytes.subarray(at, at + size), { stream: true }));
  }
  return pieces;
}

const cutUnits = (text: string, size: number) =>
  Array.from({ length: Math.ceil(text.length / size) }, (_, n) =>
    text.slice(n * size, (n + 1) * size),
  );

const JSON_EVENTS = ['{"n":1,"s":"data: x"}', '{"s":"ü✓😀: }"}', '{"s":"event: [DONE]"}', '[1,2]'];
const WHOLE = [
  ': ping - 10:05:00\n\n',
  `event: message\ndata: ${JSON_EVENTS[0]}\n\n`,
  ...JSON_EVENTS.slice(1).map((json) => `data: ${json}\n\n`),
].join('');

describe.each([1, 7, 97, 10_000])('a stream of events in pieces of %i', (size) => {
  it.each([
    ['bytes', '\n', cutBytes],
    ['bytes, with CRLF,', '\r\n', cutBytes],
    ['UTF-16 units', '\n', cutUnits],
  ])('equals the whole: %s', (_name, lineEnd, cut) => {
    const sent = `${WHOLE}data: [DONE]\n\n`.replaceAll('\n', lineEnd);
    expect(encodeAll(cut(sent, size))).toEqual({ text: WHOLE, isDone: true });
  });
});

describe('a line without a line break', () => {
  it.each(JSON_EVENTS)('is sent at once if its JSON is complete: %s', (json) => {
    const encoder = new EventEncoder();
    expect(encoder.encode(`data: ${json}`).text).toBe(`data: ${json}\n\n`);
    expect(encoder.encode('\n\n').text).toBe('');
    expect(encoder.end().text).toBe('');
  });

  it('ends a stream at once if it is the last one', () => {
    expect(new EventEncoder().encode('data: [DONE]')).toEqual({ text: '', isDone: true });
  });

  it.each([
    ['the next line', ['data: a b', 'data: c']],
    ['an object', ['data: a b', { c: 1 }]],
    ['the end', ['data: a b']],
  ])('is an event also without JSON, when %s comes', (_name, chunks) => {
    expect(encodeAll(chunks).text).toMatch(/^data: a b\n\n/);
  });

  it('may name the event of the next chunk', () => {
    expect(encodeAll(['event: delta', 'data: {"a":1}']).text).toBe(
      'event: delta\ndata: {"a":1}\n\n',
    );
  });

  it('is refused if the handler ends within its JSON', () => {
    expect(() => encodeAll(['data: {"a":', '1'])).toThrow(FailedStream);
  });

  it('is refused beyond 1 MB, as soon as it is too long', () => {
    const encoder = new EventEncoder();
    encoder.encode('data: {"a":"');
    const pieces = Array.from({ length: 11 }, () => 'x'.repeat(100_000));
    const shown = { error: expect.objectContaining({ code: 'output_too_large' }) };
    expect(() => pieces.map((each) => encoder.encode(each))).toThrow(
      expect.objectContaining({ shown: expect.objectContaining(shown) }),
    );
  });
});
