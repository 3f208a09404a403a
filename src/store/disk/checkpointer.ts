// Copies the write-ahead log of a database into its file, in a thread, so that the event loop does not wait.
import { once } from 'node:events';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { Checkpoint, CheckpointAnswer, CheckpointMode } from './checkpoint-thread.ts';

const entry = new URL(`./checkpoint-thread${extname(import.meta.url)}`, import.meta.url);

/** The thread only calls SQLite. */
const LIMITS = { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 4, stackSizeMb: 1 };

export class Checkpointer {
  readonly #path: string;
  /** Started when it is first needed. */
  #thread: Worker | undefined;
  #asked: PromiseWithResolvers<Checkpoint> | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #isClosed = false;

  constructor(path: string) {
    this.#path = path;
  }

  /** One after the other. @throws SQLite's error, with its `errcode`, or the error that ended the thread */
  run(mode: CheckpointMode): Promise<Checkpoint> {
    const result = this.#last.then(() => this.#ask(mode));
    this.#last = result.catch(() => {});
    return result;
  }

  /** Waits for the checkpoint that runs. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#last;
    const thread = this.#thread;
    if (!thread) return;
    thread.ref();
    const exited = once(thread, 'exit');
    thread.postMessage('close');
    // It may also end by an error.
    await exited.catch(() => {});
  }

  #ask(mode: CheckpointMode): Promise<Checkpoint> {
    if (this.#isClosed) return Promise.reject(new Error('The checkpoint thread is closed'));
    const asked = Promise.withResolvers<Checkpoint>();
    this.#asked = asked;
    const thread = this.#thread ?? this.#start();
    this.#thread = thread;
    // Operations may wait for the answer, but a thread that waits for the next request keeps no process alive.
    thread.ref();
    thread.postMessage(mode);
    return asked.promise.finally(() => thread.unref());
  }

  #start(): Worker {
    // Without the program's --import modules and NODE_OPTIONS: they take memory, and may keep the thread alive.
    const own = { execArgv: [], env: {} };
    const thread = new Worker(entry, { ...own, workerData: this.#path, resourceLimits: LIMITS });
    thread.on('message', (answer: CheckpointAnswer) => {
      if ('message' in answer) this.#fail(answer);
      else this.#asked?.resolve(answer);
    });
    thread.on('error', (error: unknown) => this.#asked?.reject(error));
    thread.on('exit', () => {
      this.#thread = undefined;
      this.#fail({ message: 'The checkpoint thread ended' });
    });
    return thread;
  }

  #fail({ errcode, message }: { message: string; errcode?: number | undefined }): void {
    this.#asked?.reject(Object.assign(new Error(message), errcode !== undefined && { errcode }));
  }
}
