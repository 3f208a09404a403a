// Counts the words of a book: one child job for each chapter, and no slot held while they run.
import { type Context, type Job, NonRetryableError } from 'millrace';

interface Book {
  chapters: string[];
}

/** What a child gets. */
interface Chapter {
  chapter: string;
}

export const config = { concurrency: 2 };

export default async function count({ input }: Job<Book | Chapter>, ctx: Context) {
  if ('chapter' in input) return { words: input.chapter.split(/\s+/).filter(Boolean).length };
  if (input.chapters.length > 100) throw new NonRetryableError('a book has at most 100 chapters');
  // Once for the job: each attempt goes on with the same number.
  const edition = await ctx.step('edition', () => crypto.randomUUID());
  const counts = await Promise.all(
    input.chapters.map((chapter, at) =>
      ctx.run<{ words: number }>(`chapter ${at + 1}`, { input: { chapter } }),
    ),
  );
  return { edition, words: counts.reduce((sum, { words }) => sum + words, 0) };
}
