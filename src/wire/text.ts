// Schemas of names and other free text. Text is stored and shown unchanged, so invisible characters
// are rejected.
import { z } from 'zod';

/** An unpaired surrogate has no UTF-8: two different texts would be stored as the same bytes. */
export const wellFormedText = z
  .string()
  .refine((text) => text.isWellFormed(), 'must not contain an unpaired surrogate');

/**
 * One pattern without `\P{Cc}` and without flags: generators of clients know neither flags nor two patterns for one
 * text. The characters are those of the Unicode category Cc.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what the pattern refuses
const NAME = /^[^\s\x00-\x1f\x7f-\x9f](?:[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f])?$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: as above
export const NO_CONTROL_CHARACTERS = /^[^\x00-\x1f\x7f-\x9f]*$/;

/** Name of a resource: free text of 1 to 200 characters, not unique. */
export const resourceName = wellFormedText
  .min(1)
  .max(200)
  .regex(NAME, 'must not contain control characters, nor begin or end with white space');
