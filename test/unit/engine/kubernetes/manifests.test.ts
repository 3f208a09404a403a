// The objects that a container becomes.
import { describe, expect, it } from 'vitest';
import type { ContainerSpec } from '../../../../src/engine/engine.ts';
import {
  describeClaim,
  describePod,
  describeSecret,
  listOwnClaims,
} from '../../../../src/engine/kubernetes/manifests.ts';
import { readQuantity } from '../../../../src/engine/kubernetes/pod-view.ts';
import { kubernetesSettings, listGpuPlaces } from '../../../../src/engine/kubernetes/settings.ts';

const spec: ContainerSpec = {
  ...{ id: 'pod_1', generation: 2, labels: {}, image: 'i', args: 'echo $HOME $(NAME)' },
  ...{ handler: null, env: { A: 'secret' }, ports: [], diskGb: 2, mounts: [], network: null },
  registry: { server: 'docker.io', username: 'u', password: 'p' },
  ...{ gpus: ['H200/3', 'H200/7'], limits: { vcpus: 1.5, memoryGb: 2 } },
};
const terms = { platform: 'p', settings: kubernetesSettings.parse({}) };

describe('the Pod of a container', () => {
  const pod = describePod(spec, terms);

  it('gets what it asks for, and GPUs by their product', () => {
    const [{ resources } = { resources: undefined }] = pod.spec.containers;
    expect(resources?.limits).toEqual({
      ...{ cpu: '1500m', memory: '2147483648', 'ephemeral-storage': '2147483648' },
      'nvidia.com/gpu': '2',
    });
    expect(resources?.requests).toEqual(resources?.limits);
    expect(pod.spec.nodeSelector).toEqual({ 'nvidia.com/gpu.product': 'H200' });
  });

  it('has nothing that a program could use against the cluster', () => {
    expect(pod.spec).toMatchObject({
      ...{ restartPolicy: 'Never', automountServiceAccountToken: false },
      securityContext: { seccompProfile: { type: 'RuntimeDefault' } },
      containers: [{ securityContext: { allowPrivilegeEscalation: false } }],
    });
    expect(JSON.stringify(pod)).not.toContain('secret"');
  });

  it('has few capabilities, none without root, and those that the operator chooses', () => {
    const capabilitiesWith = (given: object) => {
      const settings = kubernetesSettings.parse(given);
      return describePod(spec, { ...terms, settings }).spec.containers[0]?.securityContext;
    };
    expect(capabilitiesWith({})).toMatchObject({
      capabilities: { drop: ['ALL'], add: expect.not.arrayContaining(['NET_RAW']) },
    });
    expect(capabilitiesWith({ allowRoot: false })).toMatchObject({
      capabilities: { drop: ['ALL'] },
    });
    expect(capabilitiesWith({ allowRoot: false })).not.toHaveProperty('capabilities.add');
    const chosen = capabilitiesWith({ capabilities: ['SYS_CHROOT'] });
    expect(chosen).toMatchObject({ capabilities: { drop: ['ALL'], add: ['SYS_CHROOT'] } });
    expect(capabilitiesWith({ capabilities: 'cluster' })).not.toHaveProperty('capabilities');
    expect(() => kubernetesSettings.parse({ capabilities: ['CAP_X', 'all'] })).toThrow('CAP_');
  });

  it('has its words as they are: the kubelet expands nothing', () => {
    expect(pod.spec.containers[0]?.args).toEqual(['echo', '$$HOME', '$$(NAME)']);
  });

  it('is refused with GPUs of two products, or a folder of a node', () => {
    const mixed = { ...spec, gpus: ['H200/0', 'A100/0'] };
    expect(() => describePod(mixed, terms)).toThrow('one Pod cannot have GPUs of H200 and A100');
    const mounts = [{ kind: 'network' as const, source: '/srv', path: '/a' }];
    expect(() => describePod({ ...spec, mounts }, terms)).toThrow('/srv is a folder');
  });
});

describe('the settings of a pod of its own', () => {
  const templates = {
    ...{ nodeSelector: { pool: ['batch'] }, tolerations: [{ key: 'spot' }], labels: ['team'] },
    ...{ runtimeClass: ['gvisor'], priorityClass: ['low'], storageClass: ['fast'] },
  };
  const operator = {
    ...{ nodeSelector: { pool: 'all', zone: 'a' }, tolerations: [{ key: 'gpu' }] },
    ...{ labels: { team: 'ops', site: 'x' }, runtimeClass: 'runc', storageClass: 'slow' },
  };
  const settings = kubernetesSettings.parse({ ...operator, templates });
  const kubernetes = {
    ...{ nodeSelector: { pool: 'batch' }, tolerations: [{ key: 'spot' }] },
    ...{ labels: { team: 'vision' }, runtimeClass: 'gvisor', priorityClass: 'low' },
    storageClass: 'fast',
  };

  it("replace the operator's, and change nothing else", () => {
    const plain = describePod(spec, { platform: 'p', settings });
    expect(describePod({ ...spec, kubernetes }, { platform: 'p', settings })).toEqual({
      ...plain,
      metadata: {
        ...plain.metadata,
        labels: { ...plain.metadata.labels, team: 'vision', site: 'x' },
      },
      spec: {
        ...plain.spec,
        nodeSelector: { pool: 'batch', zone: 'a', 'nvidia.com/gpu.product': 'H200' },
        tolerations: [{ key: 'gpu' }, { key: 'spot' }],
        ...{ runtimeClassName: 'gvisor', priorityClassName: 'low' },
      },
    });
  });

  it('choose the class of new claims, except of network volumes', () => {
    const mounts = [
      { kind: 'persistent' as const, source: 'data', path: '/a', sizeGb: 5 },
      { kind: 'network' as const, source: 'network-1', path: '/b', sizeGb: 7 },
    ];
    const classesOf = (given: object) =>
      listOwnClaims({ ...spec, mounts, ...given }, { platform: 'p', settings }).map(
        (claim) => describeClaim(claim, settings).spec.storageClassName,
      );
    expect(classesOf({ kubernetes })).toEqual(['fast', 'slow']);
    expect(classesOf({})).toEqual(['slow', 'slow']);
  });

  it('are refused when the operator does not allow them any more', () => {
    const wanted = { ...spec, kubernetes: { runtimeClass: 'runc' } };
    expect(() => describePod(wanted, { platform: 'p', settings })).toThrowError(
      expect.objectContaining({
        code: 'refused',
        message:
          'kubernetes.runtimeClass: "runc" is not allowed; the operator allows only "gvisor"',
      }),
    );
  });
});

it('puts the environment and the login of its registry into the Secret of a container', () => {
  const secret = describeSecret(spec, terms);
  expect(secret.type).toBe('kubernetes.io/dockerconfigjson');
  expect(Buffer.from(secret.data['env-0'] ?? '', 'base64').toString()).toBe('secret');
  const login = JSON.parse(
    Buffer.from(secret.data['.dockerconfigjson'] ?? '', 'base64').toString(),
  );
  expect(login.auths).toMatchObject({ 'https://index.docker.io/v1/': { username: 'u' } });
  const large = { ...spec, env: { A: 'x'.repeat(1_000_000) } };
  expect(() => describeSecret(large, terms)).toThrow('env: has');
});

it('claims are made for persistent mounts and network volumes of users', () => {
  const mounts = [
    { kind: 'persistent' as const, source: 'data', path: '/a', sizeGb: 5 },
    { kind: 'network' as const, source: 'network-1', path: '/b', sizeGb: 7 },
    { kind: 'network' as const, source: 'of-operator', path: '/c' },
  ];
  expect(listOwnClaims({ ...spec, mounts }, terms)).toMatchObject([
    { name: 'p-pod-1-data', sizeGb: 5, access: 'once' },
    { name: 'p-network-1', sizeGb: 7, access: 'many' },
  ]);
  const claimed = describePod({ ...spec, mounts }, terms).spec.volumes;
  expect(claimed.map(({ persistentVolumeClaim }) => persistentVolumeClaim.claimName)).toEqual([
    ...['p-pod-1-data', 'p-network-1', 'of-operator'],
  ]);
});

it('checks the settings as a whole', () => {
  const checked = kubernetesSettings.safeParse({
    ...{ nodeSelector: { 'bad key': 'x' }, labels: { 'millrace.dev/pod': 'x' }, unknown: 1 },
  });
  expect(checked.error?.issues.map(({ path }) => path.join('.')).sort()).toEqual([
    ...['', 'labels', 'nodeSelector.bad key'],
  ]);
  const allowed = kubernetesSettings.safeParse({ templates: { hostNetwork: [true] } });
  expect(allowed.error?.issues).toMatchObject([{ path: ['templates'] }]);
  const { gpus } = kubernetesSettings.parse({ gpus: [{ product: 'H200', count: 2, memory: 141 }] });
  expect(listGpuPlaces({ gpus })).toMatchObject([
    { uuid: 'H200/0', name: 'H200' },
    { uuid: 'H200/1', memoryBytes: 141 * 2 ** 30 },
  ]);
});

it('reads quantities with their units', () => {
  expect(['250m', '1500000n', '64Mi', '2', '1k', 'x', '1Zi'].map(readQuantity)).toEqual([
    ...[0.25, 0.0015, 64 * 2 ** 20, 2, 1_000, undefined, undefined],
  ]);
});
