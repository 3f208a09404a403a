// Schemas of a note, a named text of a user; its operations.
import { z } from 'zod';
import { describeResource } from '../operations/resource.ts';
import { RESOURCES } from '../routes.ts';
import { resourceName, wellFormedText } from '../text.ts';

const noteText = wellFormedText.max(10_000);

/** Body of `POST /v1/notes`. */
const noteCreation = z.strictObject({ name: resourceName, text: noteText.default('') });
export type NoteCreation = z.infer<typeof noteCreation>;

/** Body of `PATCH /v1/notes/{id}`; omitted members stay unchanged. */
const noteUpdate = z.strictObject({
  name: resourceName.exactOptional(),
  text: noteText.exactOptional(),
});
export type NoteUpdate = z.infer<typeof noteUpdate>;

const noteRecord = z.object({
  id: z.string(),
  name: z.string(),
  text: z.string(),
  createdAt: z.iso.datetime(),
});
export type NoteRecord = z.infer<typeof noteRecord>;

export const notes = describeResource({
  outline: RESOURCES.notes,
  about: 'Texts that a user keeps beside pods and endpoints.',
  record: noteRecord,
  creation: noteCreation,
  update: noteUpdate,
  texts: {
    create: { summary: 'Create a note' },
    update: { summary: 'Update a note; omitted fields keep their value' },
    delete: { summary: 'Delete a note' },
  },
  examples: {
    record: {
      id: 'note_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d77',
      name: 'runbook',
      text: 'Restart the pod after a driver update.',
      createdAt: '2026-01-15T09:30:00.000Z',
    },
    creation: { name: 'runbook', text: 'Restart the pod after a driver update.' },
    update: { text: 'Restart the pod after each driver update.' },
  },
});
