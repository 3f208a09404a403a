// Schemas of names and other free text. Text is stored and shown unchanged, so invisible characters
// are rejected.
import { z } from 'zod';

/** An unpaired surrogate has no UTF-8: two different texts would be stored as the same bytes. */
export const wellFormedText = z
  .string()
  .refine((text) => text.isWellFormed(), 'must not contain an unpaired surrogate');

/** Name of a resource: free text of 1 to 200 characters, not unique. */
export const resourceName = wellFormedText
  .min(1)
  .max(200)
  .regex(/^\P{Cc}*$/u, 'must not contain control characters')
  .regex(/^\S(?:.*\S)?$/su, 'must not begin or end with white space');
