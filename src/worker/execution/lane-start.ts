// The start of a handler thread: its stages, their time limit, and why the start failed.
import type { LoadedConfig } from '../../handler/loading/load.ts';
import type { StartStage } from './executor.ts';

const DEFAULT_SETUP_TIMEOUT_MS = 600_000;

interface LaneStartOptions {
  handlerPath: string;
  /** Default: from the handler's config, else 10 minutes. */
  setupTimeoutMs: number | undefined;
  /** Loading and setup took too long. */
  onTimeout: (reason: string) => void;
}

export class LaneStart {
  failedCheck: string | undefined;
  /** An option of the worker does not fit the handler. */
  isMisused = false;
  config: LoadedConfig = {};
  readonly #options: LaneStartOptions;
  #isLoaded = false;
  #isOver = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: LaneStartOptions) {
    this.#options = options;
    this.#limit(undefined);
  }

  /** The stage that the start has reached; see HandlerNotLoadedError. */
  get stage(): StartStage {
    if (this.failedCheck !== undefined) return 'check';
    if (this.isMisused) return 'usage';
    return this.#isLoaded ? 'setup' : 'load';
  }

  /** The module is loaded; its setup begins. */
  noteLoaded(config: LoadedConfig): void {
    this.#isLoaded = true;
    this.config = config;
    this.#limit(config.setupTimeoutMs);
  }

  /** The thread is ready or ends: the time limit no longer applies. */
  end(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  #limit(configured: number | undefined): void {
    clearTimeout(this.#timer);
    if (this.#isOver) return;
    const { handlerPath, onTimeout, setupTimeoutMs } = this.#options;
    const ms = setupTimeoutMs ?? configured ?? DEFAULT_SETUP_TIMEOUT_MS;
    this.#timer = setTimeout(() => {
      // A module that takes too long is a failed setup, not a module that cannot be loaded.
      this.#isLoaded = true;
      onTimeout(`${handlerPath}: loading and setup took longer than ${ms} ms`);
    }, ms);
  }
}
