// Translates a container spec into the objects of Kubernetes: the Secret that is the container's record and holds its
// environment, and the Pod that runs it. Pure.
import { findLimitFaults } from '../../wire/engine/kubernetes.ts';
import { USUAL_CAPABILITIES } from '../containment.ts';
import {
  type ContainerMount,
  type ContainerSpec,
  EngineError,
  type RegistryLogin,
  splitArgs,
} from '../engine.ts';
import {
  ENDPOINT_LABEL,
  keepSpec,
  labelOf,
  labelsOf,
  nameClaim,
  nameContainer,
  nameStateClaim,
  PLATFORM_LABEL,
  POD_LABEL,
} from './names.ts';
import { type KubernetesSettings, productOf } from './settings.ts';

export const CONTAINER = 'main';
/** Key of the Pod's manifest in the Secret. */
export const MANIFEST_KEY = 'pod.json';
const LOGIN_KEY = '.dockerconfigjson';
const GPU_RESOURCE = 'nvidia.com/gpu';
const PRODUCT_LABEL = 'nvidia.com/gpu.product';
const BYTES_PER_GB = 1_073_741_824;
const MILLI = 1_000;
/** Longer than any grace period of the platform, which ends Pods earlier by itself. */
const GRACE_S = 60;
/** Autoscalers leave Pods with these annotations where they are. */
const KEPT_IN_PLACE = {
  'cluster-autoscaler.kubernetes.io/safe-to-evict': 'false',
  'karpenter.sh/do-not-disrupt': 'true',
};
/** Files that groups own: images run as any user, and must be able to write to their volumes. */
const VOLUME_GROUP = 1_000;
/** Of a Secret, bytes; the API server refuses more than 1 MiB. */
const MAX_SECRET_BYTES = 1_000_000;

interface ManifestTerms {
  platform: string;
  settings: KubernetesSettings;
}

/** @throws EngineError `refused` for a spec that no Pod can have */
export function describeSecret(spec: ContainerSpec, terms: ManifestTerms) {
  const values = Object.values(spec.env).map((value, index) => [`env-${index}`, encode(value)]);
  const manifest = encode(JSON.stringify(describePod(spec, terms)));
  const login = spec.registry && encode(JSON.stringify(describeLogin(spec.registry)));
  const data: Record<string, string> = {
    [MANIFEST_KEY]: manifest,
    ...Object.fromEntries(values),
    ...(login !== null && { [LOGIN_KEY]: login }),
  };
  const bytes = Object.values(data).reduce((sum, value) => sum + value.length, 0);
  if (bytes > MAX_SECRET_BYTES) {
    const limit = `${MAX_SECRET_BYTES} bytes in base64`;
    throw new EngineError(
      'refused',
      `env: has ${bytes} bytes, and a Secret holds at most ${limit}`,
    );
  }
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    immutable: true,
    type: login === null ? 'Opaque' : 'kubernetes.io/dockerconfigjson',
    metadata: {
      name: nameContainer(terms.platform, spec),
      labels: labelsOf(terms.platform, spec),
      annotations: keepSpec(spec),
    },
    data,
  };
}

/** @throws EngineError `refused` */
export function describePod(spec: ContainerSpec, { platform, settings }: ManifestTerms) {
  const { gpus, image, ports, registry } = spec;
  const name = nameContainer(platform, spec);
  const volumes = listVolumes(spec, platform);
  const args = splitArgs(spec.args);
  // The operator may have changed the limits since the pod was checked.
  const own = spec.kubernetes ?? {};
  const faults = findLimitFaults(own, settings.templates);
  if (faults.length > 0) throw new EngineError('refused', faults.join('; '));
  const { priorityClass, runtimeClass } = { ...settings, ...own };
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name,
      labels: { ...settings.labels, ...own.labels, ...labelsOf(platform, spec) },
      annotations: { ...KEPT_IN_PLACE, ...keepSpec(spec) },
    },
    spec: {
      restartPolicy: 'Never',
      terminationGracePeriodSeconds: GRACE_S,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      hostname: labelOf(spec.id),
      nodeSelector: { ...settings.nodeSelector, ...own.nodeSelector, ...selectGpus(gpus) },
      tolerations: [...settings.tolerations, ...(own.tolerations ?? [])],
      ...(runtimeClass !== undefined && { runtimeClassName: runtimeClass }),
      ...(priorityClass !== undefined && { priorityClassName: priorityClass }),
      ...(registry !== null && { imagePullSecrets: [{ name }] }),
      securityContext: {
        seccompProfile: { type: 'RuntimeDefault' },
        ...(volumes.length > 0 && {
          fsGroup: VOLUME_GROUP,
          fsGroupChangePolicy: 'OnRootMismatch',
        }),
        ...(!settings.allowRoot && { runAsNonRoot: true }),
      },
      containers: [
        {
          name: CONTAINER,
          image,
          ...(args.length > 0 && { args: args.map(escapeWord) }),
          env: Object.keys(spec.env).map((variable, index) => ({
            name: variable,
            valueFrom: { secretKeyRef: { name, key: `env-${index}` } },
          })),
          ports: ports.map(({ private: containerPort, protocol }) => ({
            containerPort,
            protocol: protocol === 'udp' ? 'UDP' : 'TCP',
          })),
          resources: describeResources(spec),
          securityContext: { allowPrivilegeEscalation: false, ...describeCapabilities(settings) },
          volumeMounts: volumes.map(({ name: volume, path }) => ({
            name: volume,
            mountPath: path,
          })),
        },
      ],
      volumes: volumes.map(({ claim, name: volume }) => ({
        name: volume,
        persistentVolumeClaim: { claimName: claim },
      })),
    },
  };
}

/** Without NET_RAW, a pod cannot pretend to be another one on the network of its node. */
function describeCapabilities({ allowRoot, capabilities }: KubernetesSettings) {
  if (capabilities === 'cluster') return {};
  // The Pod Security level `restricted` refuses any other set, and programs of other users could not use one.
  const add = capabilities ?? (allowRoot ? [...USUAL_CAPABILITIES] : []);
  return { capabilities: { drop: ['ALL'], ...(add.length > 0 && { add }) } };
}

/** Requests equal limits, so that a pod always has what it costs. */
function describeResources({ diskGb, gpus, limits }: ContainerSpec) {
  const amounts: Record<string, string> = {
    'ephemeral-storage': String(diskGb * BYTES_PER_GB),
    ...(limits && {
      cpu: `${Math.round(limits.vcpus * MILLI)}m`,
      memory: String(Math.round(limits.memoryGb * BYTES_PER_GB)),
    }),
    ...(gpus.length > 0 && { [GPU_RESOURCE]: String(gpus.length) }),
  };
  return { requests: amounts, limits: amounts };
}

/** @throws EngineError `refused` */
function selectGpus(gpus: readonly string[]): Record<string, string> {
  const products = new Set(gpus.map(productOf));
  const [product] = products;
  if (product === undefined) return {};
  if (products.size === 1) return { [PRODUCT_LABEL]: product };
  throw new EngineError('refused', `one Pod cannot have GPUs of ${[...products].join(' and ')}`);
}

function listVolumes({ id, mounts, stateVolume }: ContainerSpec, platform: string) {
  const own = mounts.map((mount, index) => ({
    name: `mount-${index}`,
    path: mount.path,
    claim: nameMountClaim(mount, id, platform),
  }));
  if (!stateVolume) return own;
  const { path } = stateVolume;
  return [...own, { name: 'state', path, claim: nameStateClaim(platform, stateVolume) }];
}

/** @throws EngineError `refused` for a folder: Pods see no files of a node */
function nameMountClaim(mount: ContainerMount, id: string, platform: string): string {
  if (!mount.source.startsWith('/')) return nameClaim(platform, id, mount);
  const why = `${mount.source} is a folder, and a network volume on Kubernetes is a PersistentVolumeClaim`;
  throw new EngineError('refused', why);
}

/** The kubelet would replace `$(NAME)` by the variable's value; `$$` stands for one `$`. */
function escapeWord(word: string): string {
  return word.replaceAll('$', '$$$$');
}

const HUB_SERVER = 'https://index.docker.io/v1/';

function describeLogin({ password, server, username }: RegistryLogin) {
  const host = server.replace(/^https?:\/\//, '');
  const isHub = host === 'docker.io' || host.startsWith('index.docker.io');
  const auth = encode(`${username}:${password}`);
  return { auths: { [isHub ? HUB_SERVER : host]: { username, password, auth } } };
}

export interface ClaimSource {
  name: string;
  labels: Readonly<Record<string, string>>;
  sizeGb: number;
  /** `many`: pods on several nodes may mount it. */
  access: 'once' | 'many';
  /** Default: the operator's. */
  storageClass?: string | undefined;
}

/** The claims that the platform makes for a container. */
export function listOwnClaims(
  { id, kubernetes, mounts, stateVolume }: ContainerSpec,
  { platform, settings }: ManifestTerms,
): ClaimSource[] {
  const { storageClass } = kubernetes ?? {};
  const own = mounts
    .filter(({ kind }) => kind === 'persistent')
    .map((mount) => ({
      name: nameClaim(platform, id, mount),
      labels: { [PLATFORM_LABEL]: platform, [POD_LABEL]: id },
      sizeGb: mount.sizeGb ?? 1,
      access: 'once' as const,
      storageClass,
    }));
  const shared = mounts.flatMap((mount): ClaimSource[] => {
    if (mount.kind !== 'network' || mount.sizeGb === undefined) return [];
    const labels = { [PLATFORM_LABEL]: platform };
    const name = nameClaim(platform, id, mount);
    return [{ name, labels, sizeGb: mount.sizeGb, access: 'many' }];
  });
  if (!stateVolume) return [...own, ...shared];
  const { endpointId } = stateVolume;
  const state: ClaimSource = {
    name: nameStateClaim(platform, stateVolume),
    labels: { [PLATFORM_LABEL]: platform, [ENDPOINT_LABEL]: endpointId },
    sizeGb: settings.workerStateGb ?? 1,
    access: 'once',
    storageClass,
  };
  return [...own, ...shared, state];
}

export function describeClaim(
  { access, labels, name, sizeGb, storageClass: own }: ClaimSource,
  { sharedStorageClass, storageClass }: KubernetesSettings,
) {
  const className = (access === 'many' ? sharedStorageClass : own) ?? storageClass;
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name, labels },
    spec: {
      accessModes: [access === 'many' ? 'ReadWriteMany' : 'ReadWriteOnce'],
      resources: { requests: { storage: `${sizeGb}Gi` } },
      ...(className !== undefined && { storageClassName: className }),
    },
  };
}

function encode(text: string): string {
  return Buffer.from(text).toString('base64');
}
