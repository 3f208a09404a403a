// What the stand-in accepts, and what it fills in: the API's rules for the fields that Millrace uses.
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { invalid, type KubeObject } from '../objects.ts';
import type { Resource } from './resources.ts';

const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const LABEL_VALUE = /^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$/;
const LABEL_KEY = /^([a-z0-9.-]{1,253}\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const VARIABLE = /^[-._a-zA-Z][-._a-zA-Z0-9]*$/;
const DATA_KEY = /^[-._a-zA-Z0-9]{1,253}$/;
const QUANTITY = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?$/;
const MAX_ANNOTATION_BYTES = 256 * 1024;
const MAX_SECRET_BYTES = 1024 * 1024;

const quantities = z.record(z.string(), z.union([z.string().regex(QUANTITY), z.number()]));

const containerSchema = z.looseObject({
  name: z.string().regex(LABEL).max(63),
  image: z.string().min(1),
  env: z.array(z.looseObject({ name: z.string().regex(VARIABLE) })).optional(),
  ports: z.array(z.looseObject({ containerPort: z.number().int().min(1).max(65_535) })).optional(),
  resources: z
    .looseObject({ requests: quantities.optional(), limits: quantities.optional() })
    .optional(),
  volumeMounts: z
    .array(z.looseObject({ name: z.string(), mountPath: z.string().min(1) }))
    .optional(),
});

const podSpecSchema = z.looseObject({
  containers: z.array(containerSchema).min(1),
  initContainers: z.array(containerSchema).optional(),
  volumes: z.array(z.looseObject({ name: z.string().regex(LABEL).max(63) })).optional(),
  activeDeadlineSeconds: z.number().int().min(1).max(2_147_483_647).optional(),
  terminationGracePeriodSeconds: z.number().int().min(0).optional(),
  nodeSelector: z.record(z.string(), z.string().regex(LABEL_VALUE).max(63)).optional(),
});

const claimSpecSchema = z.looseObject({
  accessModes: z
    .array(z.enum(['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod']))
    .min(1),
  resources: z.looseObject({ requests: z.looseObject({ storage: z.string().regex(QUANTITY) }) }),
});

const secretSchema = z.looseObject({ data: z.record(z.string(), z.base64()).optional() });

/** @throws KubeError 422 */
export function checkObject({ kind }: Resource, object: KubeObject): void {
  const { annotations, labels, name } = object.metadata;
  const refuse = (what: string) => invalid(kind, name, what);
  if (!SUBDOMAIN.test(name) || name.length > 253) {
    throw refuse(`metadata.name: Invalid value: ${JSON.stringify(name)}`);
  }
  for (const [key, value] of Object.entries(labels ?? {})) {
    const isValid = LABEL_KEY.test(key) && LABEL_VALUE.test(value) && value.length <= 63;
    if (!isValid) throw refuse(`metadata.labels: Invalid value: ${JSON.stringify(value)}`);
  }
  if (countBytes(annotations ?? {}) > MAX_ANNOTATION_BYTES) {
    throw refuse('metadata.annotations: Too long: must have at most 262144 bytes');
  }
  if (kind === 'Pod') checkWith(podSpecSchema, object.spec, refuse);
  if (kind === 'Pod') checkPod(podSpecSchema.parse(object.spec), refuse);
  if (kind === 'PersistentVolumeClaim') checkWith(claimSpecSchema, object.spec, refuse);
  if (kind === 'Secret') checkSecret(object, refuse);
}

function checkWith(schema: z.ZodType, value: unknown, refuse: (what: string) => Error): void {
  const problem = schema.safeParse(value ?? {}).error?.issues[0];
  if (problem) throw refuse(`spec.${problem.path.join('.')}: Invalid value: ${problem.message}`);
}

function checkPod(
  { containers, volumes = [] }: z.infer<typeof podSpecSchema>,
  refuse: (what: string) => Error,
): void {
  for (const { resources, volumeMounts = [] } of containers) {
    const { limits = {}, requests = {} } = resources ?? {};
    for (const [name, value] of Object.entries(requests)) {
      const limit = limits[name];
      if (limit !== undefined && parseQuantity(value) > parseQuantity(limit)) {
        throw refuse(`spec.containers[0].resources.requests: must be less than ${name} limit`);
      }
    }
    for (const name of Object.keys({ ...requests, ...limits })) {
      const isExtended = name.includes('/');
      if (isExtended && String(limits[name]) !== String(requests[name] ?? limits[name])) {
        throw refuse(`spec.containers[0].resources.requests: must be equal to ${name} limit`);
      }
    }
    const missing = volumeMounts.find((mount) => !volumes.some(({ name }) => name === mount.name));
    if (missing)
      throw refuse(`spec.containers[0].volumeMounts[0].name: Not found: ${missing.name}`);
  }
}

function checkSecret(object: KubeObject, refuse: (what: string) => Error): void {
  const { data = {} } = secretSchema.parse(object);
  const badKey = Object.keys(data).find((key) => !DATA_KEY.test(key));
  if (badKey !== undefined) throw refuse(`data[${badKey}]: Invalid value`);
  const bytes = Object.values(data).reduce(
    (sum, text) => sum + Buffer.byteLength(text, 'base64'),
    0,
  );
  if (bytes > MAX_SECRET_BYTES) throw refuse('data: Too long: must have at most 1048576 bytes');
}

function countBytes(texts: Record<string, string>): number {
  return Object.entries(texts).reduce((sum, [key, value]) => sum + key.length + value.length, 0);
}

/** What an update may not change. @throws KubeError 422 */
export function checkUpdate(resource: Resource, before: KubeObject, next: KubeObject): void {
  const refuse = (what: string) => invalid(resource.kind, next.metadata.name, what);
  const { deletionTimestamp, finalizers, uid } = before.metadata;
  if (next.metadata.uid !== uid) throw refuse('metadata.uid: Invalid value: field is immutable');
  const added = next.metadata.finalizers?.filter((each) => !finalizers?.includes(each)) ?? [];
  if (deletionTimestamp && added.length > 0) {
    throw refuse('metadata.finalizers: Forbidden: no new finalizers can be added');
  }
  if (resource.kind === 'Secret' && before['type'] !== next['type']) {
    throw refuse('type: Invalid value: field is immutable');
  }
  const isSealed = resource.kind === 'Secret' && before['immutable'] === true;
  if (isSealed && !isDeepStrictEqual(before['data'], next['data'])) {
    throw refuse('data: Forbidden: field is immutable when `immutable` is set');
  }
  if (resource.kind === 'Pod') {
    if (!isDeepStrictEqual(fixedPodFields(before), fixedPodFields(next))) {
      throw refuse('spec: Forbidden: pod updates may not change fields other than some');
    }
    const was = before.spec?.['activeDeadlineSeconds'];
    const is = next.spec?.['activeDeadlineSeconds'];
    if (typeof was === 'number' && (typeof is !== 'number' || is > was)) {
      throw refuse('spec.activeDeadlineSeconds: must be less than or equal to previous value');
    }
  }
  if (resource.kind === 'PersistentVolumeClaim') {
    const fixed = ({ spec }: KubeObject) => ({ ...spec, resources: undefined });
    if (!isDeepStrictEqual(fixed(before), fixed(next))) {
      throw refuse('spec: Forbidden: spec is immutable after creation except resources.requests');
    }
  }
}

function fixedPodFields({ spec }: KubeObject): unknown {
  const { containers } = podSpecSchema.parse(spec);
  return {
    ...spec,
    activeDeadlineSeconds: undefined,
    tolerations: undefined,
    containers: containers.map((each) => ({ ...each, image: undefined })),
  };
}

/** The object with the fields that the API server adds. */
export function addDefaults({ kind }: Resource, object: KubeObject): KubeObject {
  const { metadata, spec } = object;
  if (kind === 'Pod') {
    const defaults = { restartPolicy: 'Always', terminationGracePeriodSeconds: 30 };
    return { ...object, spec: { ...defaults, ...spec }, status: { phase: 'Pending' } };
  }
  if (kind === 'PersistentVolumeClaim') {
    // Removed by a controller when no pod uses the claim.
    const finalizers = [...(metadata.finalizers ?? []), 'kubernetes.io/pvc-protection'];
    const status = { phase: 'Pending' };
    return { ...object, metadata: { ...metadata, finalizers }, status };
  }
  if (kind === 'Secret') return { ...encodeTexts(object), type: object['type'] ?? 'Opaque' };
  return object;
}

/** Moves `stringData` of a Secret to `data`. */
export function encodeTexts(object: KubeObject): KubeObject {
  const { stringData, ...rest } = object;
  const given = z.record(z.string(), z.string()).safeParse(stringData).data ?? {};
  const texts = Object.entries(given).map(([key, text]) => [key, btoaUtf8(text)]);
  return { ...rest, data: { ...secretSchema.parse(object).data, ...Object.fromEntries(texts) } };
}

function btoaUtf8(text: string): string {
  return Buffer.from(text).toString('base64');
}

const SUFFIXES: Readonly<Record<string, number>> = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** Such as `500m` or `2Gi`. */
export function parseQuantity(quantity: string | number): number {
  const [, number = '0', suffix = ''] =
    /^([+-]?[\d.]+(?:[eE][+-]?\d+)?)(\D*)$/.exec(String(quantity)) ?? [];
  return Number(number) * (SUFFIXES[suffix] ?? 1);
}
