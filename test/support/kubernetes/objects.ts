// What the tests know of a Kubernetes object and of the API's errors.
import { z } from 'zod';

const ownerSchema = z.looseObject({
  apiVersion: z.string(),
  kind: z.string(),
  name: z.string(),
  uid: z.string(),
});

const metadataSchema = z.looseObject({
  name: z.string().default(''),
  generateName: z.string().optional(),
  namespace: z.string().optional(),
  uid: z.string().default(''),
  resourceVersion: z.string().optional(),
  creationTimestamp: z.string().nullish(),
  deletionTimestamp: z.string().nullish(),
  deletionGracePeriodSeconds: z.number().nullish(),
  labels: z.record(z.string(), z.string()).nullish(),
  annotations: z.record(z.string(), z.string()).nullish(),
  finalizers: z.array(z.string()).nullish(),
  ownerReferences: z.array(ownerSchema).nullish(),
});

const fieldsSchema = z.record(z.string(), z.unknown());

export const objectSchema = z.looseObject({
  apiVersion: z.string().default('v1'),
  kind: z.string().default(''),
  metadata: metadataSchema,
  spec: fieldsSchema.optional(),
  status: fieldsSchema.optional(),
});

export type KubeObject = z.infer<typeof objectSchema>;
export type Fields = Record<string, unknown>;

export const watchEventSchema = z.object({
  type: z.enum(['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR']),
  object: z.looseObject({ code: z.number().optional(), metadata: metadataSchema }),
});

export type WatchEventType = z.infer<typeof watchEventSchema>['type'];

/** An answer of the API that is not a success. `reason`: such as `AlreadyExists`. */
export class KubeError extends Error {
  override readonly name = 'KubeError';
  readonly code: number;
  readonly reason: string;

  constructor(code: number, reason: string, message: string) {
    super(message);
    this.code = code;
    this.reason = reason;
  }
}

export const invalid = (kind: string, name: string, what: string) =>
  new KubeError(422, 'Invalid', `${kind} ${JSON.stringify(name)} is invalid: ${what}`);

export const badRequest = (message: string) => new KubeError(400, 'BadRequest', message);
