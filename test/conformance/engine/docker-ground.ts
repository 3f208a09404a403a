// Test setup for Docker: a unique platform name on this machine's engine.
import { randomBytes } from 'node:crypto';
import { silentLog } from '../../../src/base/log.ts';
import { DEFAULT_HOST } from '../../../src/engine/docker/docker-client.ts';
import {
  DockerEngine,
  type DockerEngineOptions,
} from '../../../src/engine/docker/docker-engine.ts';
import { docker } from '../../support/containers/docker.ts';
import type { EngineGround } from './engine-stage.ts';

export class DockerGround {
  readonly host = process.env['DOCKER_HOST'] ?? DEFAULT_HOST;
  /** The platform name of the current test. */
  platform = '';

  async open(): Promise<EngineGround> {
    this.platform = `millrace-test-${randomBytes(6).toString('hex')}`;
    return { open: () => this.openEngine(), close: () => this.#clear() };
  }

  /** Opens another engine object, by default for the same platform. */
  openEngine(options: Partial<DockerEngineOptions> = {}): DockerEngine {
    const { host, platform } = this;
    return new DockerEngine({ platform, log: silentLog, host, ...options });
  }

  async #clear(): Promise<void> {
    const label = `label=millrace.platform=${this.platform}`;
    const networks = await docker('network', 'ls', '--quiet', '--filter', label);
    for (const id of networks.split('\n').filter(Boolean)) await docker('network', 'rm', id);
  }
}
