// The handlers echo and text-stream.

import { describe, expect, it } from 'vitest';
import echo from '../../../handlers/echo.ts';
import textStream from '../../../handlers/text-stream.ts';
import { collectStream, isAsyncGenerator, makeContext } from '../../support/handler-context.ts';

describe('echo', () => {
  it('returns its input', async () => {
    const input = { text: 'ein Echo', list: [1, null, { deep: true }] };

    expect(await echo({ id: 'j', input })).toBe(input);
  });
});

async function stream(raw: unknown) {
  const { ctx } = makeContext();
  const input = textStream.input?.parse(raw);
  if (input === undefined) throw new Error('no schema');
  return await collectStream(textStream.run({ id: 'j', input }, ctx));
}

describe('text-stream', () => {
  const text = 'Dr. Ada wrote it.  Did she? Yes — in 1843! 👩‍👩‍👧 é\nend';

  it.each(['word', 'token', 'sentence', 'character'])(
    'loses nothing of the text by %s',
    async (by) => {
      const { outputs } = await stream({ text, by });

      expect(outputs.join('')).toBe(text);
      expect(outputs.length).toBeGreaterThan(1);
    },
  );

  it('returns nothing, so that the pieces are the output', async () => {
    expect((await stream({ text })).returned).toBeUndefined();
  });

  it('yields words with the text after them and counts them', async () => {
    const { outputs, metrics } = await stream({ text: '“Hi, you” 42.' });

    expect(outputs).toEqual(['“Hi, ', 'you” ', '42.']);
    expect(metrics.map(({ words }) => words)).toEqual([1, 1, 1]);
    expect(metrics.map(({ characters }) => characters)).toEqual([5, 5, 3]);
  });

  it('yields tokens: words, spaces and punctuation separately', async () => {
    const { outputs, metrics } = await stream({ text: 'Hi, you', by: 'token' });

    expect(outputs).toEqual(['Hi', ',', ' ', 'you']);
    expect(metrics.map(({ words }) => words)).toEqual([1, 0, 0, 1]);
  });

  it('counts the words and characters of each sentence', async () => {
    const { outputs, metrics } = await stream({ text: 'One. Two three.', by: 'sentence' });

    expect(outputs).toEqual(['One. ', 'Two three.']);
    expect(metrics).toEqual([
      { words: 1, characters: 5 },
      { words: 2, characters: 10 },
    ]);
  });

  it('keeps grapheme clusters together', async () => {
    const { outputs, metrics } = await stream({ text: 'a👩‍👩‍👧é', by: 'character' });

    expect(outputs).toEqual(['a', '👩‍👩‍👧', 'é']);
    expect(metrics[0]).toEqual({ characters: 1 });
  });

  it('finds the words of a language without spaces', async () => {
    const { outputs } = await stream({ text: '吾輩は猫である', locale: 'ja' });

    expect(outputs.length).toBeGreaterThan(2);
  });

  it('yields no piece for an empty text', async () => {
    expect((await stream({ text: '' })).outputs).toEqual([]);
  });

  it('stops waiting for the next piece when the job is cancelled', async () => {
    const { ctx, controller } = makeContext();
    const input = textStream.input?.parse({ text: 'one two', delayMs: 60_000 });
    if (input === undefined) throw new Error('no schema');
    const pieces = textStream.run({ id: 'j', input }, ctx);
    if (!isAsyncGenerator(pieces)) throw new Error('not a generator');
    const next = pieces.next();
    controller.abort();

    await expect(next).rejects.toThrow('aborted');
  });

  it.each([
    [{ text: 1 }, 'text'],
    [{ text: '', by: 'line' }, 'by'],
    [{ text: '', locale: 'not a locale' }, 'locale'],
    [{ text: '', delayMs: -1 }, 'delayMs'],
    [{ text: '', speed: 2 }, ''],
  ])('refuses %j', (raw, path) => {
    const issues = textStream.input?.safeParse(raw).error?.issues;

    expect(issues?.map((issue) => issue.path.join('.'))).toEqual([path]);
  });
});
