// What pods and templates may ask of Kubernetes, within the limits of the operator.
import { expect, it } from 'vitest';
import {
  findLimitFaults,
  kubernetesLimits,
  podKubernetes,
} from '../../../../src/wire/engine/kubernetes.ts';

const GPU_TAINT = { key: 'gpu', operator: 'Exists', effect: 'NoSchedule' };
const limits = kubernetesLimits.parse({
  nodeSelector: { pool: ['inference', 'batch'], zone: ['a'] },
  tolerations: [GPU_TAINT, { key: 'spot', value: 'yes' }],
  labels: ['team'],
  runtimeClass: ['gvisor'],
  priorityClass: ['low'],
});
const nothing = kubernetesLimits.parse({});
const judge = (wanted: object, within = limits) =>
  findLimitFaults(podKubernetes.parse(wanted), within);

it('allows exactly what the operator allows', () => {
  const wanted = {
    nodeSelector: { pool: 'batch' },
    tolerations: [GPU_TAINT, { key: 'spot', operator: 'Equal', value: 'yes' }],
    labels: { team: 'vision' },
    ...{ runtimeClass: 'gvisor', priorityClass: 'low' },
  };
  expect(judge(wanted)).toEqual([]);
  expect(judge({}, nothing)).toEqual([]);
  expect(judge(wanted, nothing).map((fault) => fault.split(': ')[0])).toEqual([
    ...['kubernetes.nodeSelector.pool', 'kubernetes.tolerations[0]', 'kubernetes.tolerations[1]'],
    ...['kubernetes.labels.team', 'kubernetes.runtimeClass', 'kubernetes.priorityClass'],
  ]);
});

it.each([
  [{ nodeSelector: { pool: 'web' } }, 'nodeSelector.pool: "web"', '"inference", "batch"'],
  [{ nodeSelector: { disk: 'ssd' } }, 'nodeSelector.disk: "disk"', '"pool", "zone"'],
  [{ nodeSelector: { constructor: 'x' } }, 'nodeSelector.constructor: "constructor"', '"pool"'],
  [
    { tolerations: [{ operator: 'Exists' }] },
    'tolerations[0]: {"operator":"Exists"}',
    '{"key":"gpu"',
  ],
  [
    { tolerations: [{ ...GPU_TAINT, tolerationSeconds: 5 }] },
    'tolerations[0]: {"key":"gpu","operator":"Exists","effect":"NoSchedule","tolerationSeconds":5}',
    '{"key":"gpu","operator":"Exists","effect":"NoSchedule"}, {"key":"spot","value":"yes"}',
  ],
  [{ labels: { app: 'x' } }, 'labels.app: "app"', '"team"'],
  [{ runtimeClass: 'runc' }, 'runtimeClass: "runc"', '"gvisor"'],
])('refuses %j with its path, its value and what is allowed', (wanted, fault, allowed) => {
  const [found = '', ...more] = judge(wanted);
  expect(found).toContain(
    `kubernetes.${fault} is not allowed; the operator allows only ${allowed}`,
  );
  expect(more).toEqual([]);
});

it('says without limits that nothing is allowed', () => {
  expect(judge({ storageClass: 'fast' })).toEqual([
    'kubernetes.storageClass: "fast" is not allowed; the operator allows nothing here',
  ]);
});

it.each([
  ['a label of the platform', { labels: { 'millrace.dev/pod': 'x' } }],
  ['a label without a valid key', { labels: { '-': 'x' } }],
  ['a value with a space', { nodeSelector: { pool: 'with space' } }],
  [
    'a selector of 33 labels',
    { nodeSelector: Object.fromEntries(Array.from({ length: 33 }, (_, n) => [`k${n}`, 'v'])) },
  ],
  ['33 tolerations', { tolerations: Array.from({ length: 33 }, () => GPU_TAINT) }],
  ['a class that is no name', { runtimeClass: 'A B' }],
  ['any other field of a Pod', { hostNetwork: true }],
])('refuses %s by the schema', (_what, wanted) => {
  expect(podKubernetes.safeParse(wanted).success).toBe(false);
});

it('keeps the operator from allowing labels that the platform sets', () => {
  const parse = (given: object) => kubernetesLimits.safeParse(given).success;
  expect(parse({ labels: ['millrace.dev/pod'] })).toBe(false);
  expect(parse({ nodeSelector: { 'nvidia.com/gpu.product': ['H200'] } })).toBe(false);
  expect(parse({ nodeSelector: { pool: [] } })).toBe(false);
});
