// Test setup for Kubernetes: a namespace of its own in the cluster of the test file.
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { silentLog } from '../../../src/base/log.ts';
import {
  KubernetesEngine,
  type KubernetesEngineOptions,
} from '../../../src/engine/kubernetes/kubernetes-engine.ts';
import { kubernetesSettings } from '../../../src/engine/kubernetes/settings.ts';
import type { KubeAccess, KubeClient } from '../../support/kubernetes/client.ts';
import { type Cluster, writeKubeconfig } from '../../support/kubernetes/cluster.ts';
import type { Kubelet } from '../../support/kubernetes/kubelet/kubelet.ts';
import type { EngineGround } from './engine-stage.ts';

/** A loaded machine may take long to run a process. */
const START_WAIT_MS = 30_000;

/** Makes the credentials of a platform in the namespace. */
type AccountMaker = (cluster: Cluster, namespace: string) => Promise<KubeAccess>;

export class KubernetesGround {
  readonly #cluster: () => Cluster;
  readonly #makeAccount: AccountMaker;
  /** The namespace of the current test. */
  namespace = '';
  /** The platform name of the current test. */
  platform = '';
  #folder = '';

  /** Default of the account: the administrator's. */
  constructor(cluster: () => Cluster, makeAccount: AccountMaker = async ({ access }) => access) {
    this.#cluster = cluster;
    this.#makeAccount = makeAccount;
  }

  async open(): Promise<EngineGround> {
    this.namespace = await this.#cluster().createNamespace();
    this.platform = `test-${randomBytes(4).toString('hex')}`;
    this.#folder = await mkdtemp(join(tmpdir(), 'millrace-kube-'));
    const access = await this.#makeAccount(this.#cluster(), this.namespace);
    await writeKubeconfig(this.kubeconfig, access, this.namespace);
    return {
      open: () => this.openEngine(),
      share: (folder) => this.#share(folder),
      close: () => rm(this.#folder, { recursive: true, force: true }),
    };
  }

  get admin(): KubeClient {
    return this.#cluster().admin;
  }

  get kubelet(): Kubelet {
    return this.#cluster().kubelet;
  }

  get kubeconfig(): string {
    return join(this.#folder, 'kubeconfig');
  }

  /** Opens another engine object, by default for the same platform. */
  openEngine(options: Partial<KubernetesEngineOptions> = {}): KubernetesEngine {
    return new KubernetesEngine({
      ...{ platform: this.platform, log: silentLog, startWaitMs: START_WAIT_MS },
      access: { kubeconfig: this.kubeconfig, environment: {} },
      settings: kubernetesSettings.parse({}),
      ...options,
    });
  }

  /** A claim that the test's kubelet mounts as this folder. */
  async #share(folder: string): Promise<string> {
    const name = basename(folder).toLowerCase();
    const path = `/api/v1/namespaces/${this.namespace}/persistentvolumeclaims`;
    await this.#cluster().admin.create(path, {
      ...{ apiVersion: 'v1', kind: 'PersistentVolumeClaim' },
      metadata: { name, annotations: { 'test.millrace.dev/folder': folder } },
      spec: { accessModes: ['ReadWriteMany'], resources: { requests: { storage: '1Gi' } } },
    });
    return name;
  }
}
