// Schemas of a registry: the login with which an engine pulls private images; its operations. No answer
// has the secret.
import { z } from 'zod';
import { describeResource } from '../operations/resource.ts';
import { RESOURCES } from '../routes/routes.ts';
import { creationShape, recordShape, updateShape } from './field-schemas.ts';
import { REGISTRY_FIELDS } from './fields.ts';

/** Body of `POST /v1/registries`. */
export const registryCreation = z.strictObject(creationShape(REGISTRY_FIELDS));
export type RegistryCreation = z.infer<typeof registryCreation>;

/** Body of `PATCH /v1/registries/{id}`; omitted members stay unchanged. */
export const registryUpdate = z.strictObject(updateShape(REGISTRY_FIELDS));
export type RegistryUpdate = z.infer<typeof registryUpdate>;

export const registryRecord = z.object({
  id: z.string(),
  ...recordShape(REGISTRY_FIELDS),
  declared: z
    .boolean()
    .describe("Whether the operator's catalog file declares it: then the API cannot change it"),
  createdAt: z.iso.datetime().nullable().describe('Null for a declared registry'),
});
export type RegistryRecord = z.infer<typeof registryRecord>;

export const registries = describeResource({
  outline: RESOURCES.registries,
  about: 'Registries: logins with which private images are pulled.',
  record: registryRecord,
  creation: registryCreation,
  update: registryUpdate,
  answer: 'All but the secret.',
  texts: {
    create: {
      summary: 'Create a registry login',
      description: 'While the platform has no key to encrypt the secret with, the answer is 409.',
    },
    update: {
      summary: 'Change the name, the user or the secret of a registry login',
      description: 'The next pull uses it. The server cannot be changed.',
    },
    delete: {
      summary: 'Delete a registry login',
      description: 'While a pod or template uses it, the answer is 409 and names them.',
    },
  },
  examples: {
    record: {
      id: 'reg_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d70',
      name: 'own',
      server: 'registry.example.com',
      username: 'ci',
      declared: false,
      createdAt: '2026-01-15T09:30:00.000Z',
    },
    creation: { name: 'own', server: 'registry.example.com', username: 'ci', secret: 'token' },
    update: { secret: 'new-token' },
  },
});
