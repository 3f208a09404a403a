// Services for pods of the sandbox: a name and an address that leads to ready pods. Like kube-proxy, it hears of changes
// late.
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import {
  type KubeClient,
  type KubeObject,
  objectSchema,
  watchAll,
} from '../../support/kubernetes/client.ts';
import type { Sandbox } from './sandbox.ts';

/** A node of a cluster may go on to use a pod for about that long after it began to end. */
const LAG_MS = 3_000;

const serviceSpec = z.looseObject({
  clusterIP: z.string().optional(),
  selector: z.record(z.string(), z.string()).optional(),
  ports: z
    .array(z.looseObject({ port: z.number(), targetPort: z.union([z.string(), z.number()]) }))
    .default([]),
});
const podView = z.looseObject({
  spec: z.looseObject({
    hostname: z.string().optional(),
    subdomain: z.string().optional(),
    containers: z.array(
      z.looseObject({
        ports: z
          .array(z.looseObject({ name: z.string().optional(), containerPort: z.number() }))
          .default([]),
      }),
    ),
  }),
  status: z.looseObject({
    podIP: z.string().optional(),
    conditions: z.array(z.looseObject({ type: z.string(), status: z.string() })).default([]),
  }),
});

export class Services {
  readonly #sandbox: Sandbox;
  readonly #stopped = new AbortController();
  readonly #names: readonly (readonly [string, string])[];
  readonly #watching: Promise<void>[];
  readonly #open = new Set<string>();
  #services: KubeObject[] = [];
  #pods: KubeObject[] = [];
  /** As the proxy knows them. */
  #lagging: KubeObject[] = [];
  #turn = 0;

  /** `names`: further names for pods, with their addresses. */
  constructor(client: KubeClient, sandbox: Sandbox, names: readonly (readonly [string, string])[]) {
    this.#sandbox = sandbox;
    this.#names = names;
    const { signal } = this.#stopped;
    this.#watching = [
      watchAll(client, '/api/v1/services', signal, (all) => {
        this.#services = [...all.values()];
        this.#update();
      }),
      watchAll(client, '/api/v1/pods', signal, (all) => {
        this.#pods = [...all.values()];
        this.#update();
        const pods = this.#pods.map((pod) => objectSchema.parse(structuredClone(pod)));
        sleep(LAG_MS, undefined, { signal, ref: false }).then(
          () => {
            this.#lagging = pods;
          },
          () => {},
        );
      }),
    ];
  }

  async close(): Promise<void> {
    this.#stopped.abort();
    await Promise.all(this.#watching);
  }

  #update(): void {
    const names = this.#services.flatMap(({ metadata, spec }) => {
      const { clusterIP } = serviceSpec.parse(spec);
      const domain = `${metadata.name}.${metadata.namespace}.svc`;
      return clusterIP === undefined || clusterIP === 'None' ? [] : [[domain, clusterIP] as const];
    });
    const ofPods = this.#pods.flatMap(({ metadata, spec, status }) => {
      const pod = podView.safeParse({ spec, status }).data;
      const { hostname, subdomain } = pod?.spec ?? {};
      if (hostname === undefined || subdomain === undefined || !pod?.status.podIP) return [];
      return [[`${hostname}.${subdomain}.${metadata.namespace}.svc`, pod.status.podIP] as const];
    });
    this.#sandbox.setHosts([...this.#names, ...names, ...ofPods]);
    for (const service of this.#services) this.#serve(service);
  }

  #serve({ metadata, spec }: KubeObject): void {
    const { clusterIP: address, ports, selector } = serviceSpec.parse(spec);
    if (address === undefined || address === 'None' || !selector) return;
    for (const { port, targetPort } of ports) {
      const id = `${address}:${port}`;
      if (this.#open.has(id)) continue;
      this.#open.add(id);
      const wanted = Object.entries(selector);
      const choose = () => {
        const ready = this.#lagging.filter(
          (pod) =>
            pod.metadata.namespace === metadata.namespace &&
            wanted.every(([key, value]) => pod.metadata.labels?.[key] === value) &&
            isReady(pod),
        );
        const pod = ready[this.#turn++ % Math.max(1, ready.length)];
        return pod && targetOf(pod, targetPort);
      };
      this.#sandbox.serve({ address, port }, choose).catch((error: unknown) => {
        console.error(`the Service ${metadata.name} is not served`, error);
      });
    }
  }
}

function isReady({ metadata, spec, status }: KubeObject): boolean {
  if (metadata.deletionTimestamp) return false;
  const conditions = podView.safeParse({ spec, status }).data?.status.conditions ?? [];
  return conditions.some(({ status: state, type }) => type === 'Ready' && state === 'True');
}

function targetOf({ spec, status }: KubeObject, target: string | number) {
  const pod = podView.parse({ spec, status });
  const ports = pod.spec.containers.flatMap((container) => container.ports);
  const port = ports.find(({ name }) => name === target)?.containerPort ?? Number(target);
  return { host: pod.status.podIP ?? '', port };
}
