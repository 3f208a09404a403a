// Schemas of a shared limit, which holds for the jobs of several endpoints together; its operations.
import { z } from 'zod';
import { describeResource } from '../operations/resource.ts';
import { RESOURCES } from '../routes/routes.ts';
import { exampleOf } from './field.ts';
import { creationShape, recordShape, updateShape } from './field-schemas.ts';
import { SHARED_LIMIT_FIELDS } from './fields.ts';

/** Body of `POST /v1/shared-limits`. */
export const sharedLimitCreation = z.strictObject(creationShape(SHARED_LIMIT_FIELDS));
export type SharedLimitCreation = z.infer<typeof sharedLimitCreation>;

/** Body of `PATCH /v1/shared-limits/{id}`; omitted members stay unchanged. */
export const sharedLimitUpdate = z.strictObject(updateShape(SHARED_LIMIT_FIELDS));
export type SharedLimitUpdate = z.infer<typeof sharedLimitUpdate>;

export const sharedLimitRecord = z.object({
  id: z.string(),
  ...recordShape(SHARED_LIMIT_FIELDS),
  createdAt: z.iso.datetime(),
});
export type SharedLimitRecord = z.infer<typeof sharedLimitRecord>;

export const sharedLimits = describeResource({
  outline: RESOURCES.sharedLimits,
  about:
    'Limits that several endpoints share, such as the quota of a service that their handlers call.',
  record: sharedLimitRecord,
  creation: sharedLimitCreation,
  update: sharedLimitUpdate,
  texts: {
    create: { summary: 'Create a limit that endpoints can share' },
    update: {
      summary: 'Update a shared limit; omitted fields keep their value',
      description: 'It holds for new starts; running jobs go on.',
    },
    delete: { summary: 'Delete a shared limit that no endpoint uses' },
  },
  examples: {
    record: {
      id: 'lim_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76',
      ...exampleOf(SHARED_LIMIT_FIELDS),
      name: 'upstream',
      createdAt: '2026-01-15T09:30:00.000Z',
    },
    creation: { name: 'upstream', rateLimit: { max: 500, perMs: 60_000 }, concurrency: 20 },
    update: { concurrency: 10 },
  },
});
