// Streams a text piece by piece, with counts as metrics, as a language model streams its answer.
//
//   { "text": "One. Two three.", "by": "sentence" }
//   →  "One. "        { "words": 1, "characters": 5 }
//      "Two three."   { "words": 2, "characters": 10 }
//
// The pieces, joined, are the text, character by character. There is no return value, so that the
// output of the job is the array of pieces.
import { setTimeout as delay } from 'node:timers/promises';
import { type Context, defineHandler, type Job } from 'millrace';
import { z } from 'zod';

const input = z.strictObject({
  text: z.string(),
  /**
   * `word`: a word with what stands between it and the next. `token`: words, spaces and punctuation
   * each for itself. `sentence`. `character`: what a reader calls one, emoji with all their parts.
   */
  by: z.enum(['word', 'token', 'sentence', 'character']).default('word'),
  /** BCP 47, e.g. `th`: words and sentences end where that language ends them. */
  locale: z
    .string()
    .refine(isLocale, 'is not a language tag such as "en" or "pt-BR"')
    .default('en'),
  /** ms before each piece. */
  delayMs: z.int().min(0).max(60_000).default(0),
});

type TextInput = z.infer<typeof input>;

export default defineHandler({
  input,
  output: z.string(),
  run: streamText,
  config: { concurrency: 16 },
});

async function* streamText({ input: request }: Job<TextInput>, ctx: Context) {
  const { text, by, locale, delayMs } = request;
  const words = new Intl.Segmenter(locale, { granularity: 'word' });
  const characters = new Intl.Segmenter(locale, { granularity: 'grapheme' });
  for (const piece of splitText(text, by, locale)) {
    if (delayMs > 0) await delay(delayMs, undefined, { signal: ctx.signal });
    yield ctx.chunk(piece, {
      // A single character tells nothing of words.
      ...(by !== 'character' && { words: countSegments(words, piece, isWord) }),
      characters: countSegments(characters, piece, () => true),
    });
  }
}

function* splitText(text: string, by: TextInput['by'], locale: string): Generator<string> {
  if (by === 'word') {
    yield* splitWords(text, locale);
    return;
  }
  const granularity = ({ token: 'word', sentence: 'sentence', character: 'grapheme' } as const)[by];
  const segmenter = new Intl.Segmenter(locale, { granularity });
  for (const { segment } of segmenter.segment(text)) yield segment;
}

function* splitWords(text: string, locale: string): Generator<string> {
  let piece = '';
  let hasWord = false;
  for (const segment of new Intl.Segmenter(locale, { granularity: 'word' }).segment(text)) {
    if (isWord(segment) && hasWord) {
      yield piece;
      piece = '';
    }
    piece += segment.segment;
    hasWord ||= isWord(segment);
  }
  if (piece !== '') yield piece;
}

function isWord({ isWordLike }: Intl.SegmentData): boolean {
  return isWordLike === true;
}

function countSegments(
  segmenter: Intl.Segmenter,
  text: string,
  counts: (segment: Intl.SegmentData) => boolean,
): number {
  let count = 0;
  for (const segment of segmenter.segment(text)) if (counts(segment)) count += 1;
  return count;
}

function isLocale(tag: string): boolean {
  try {
    return Intl.getCanonicalLocales(tag).length === 1;
  } catch {
    return false;
  }
}
