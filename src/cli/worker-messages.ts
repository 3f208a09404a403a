// What a worker process tells the `millrace dev` that started it, over the channel between them.
import { EXIT } from './command.ts';

export interface WorkerMessage {
  type: 'ready';
}

export function tellParent(message: WorkerMessage): void {
  process.send?.(message);
}

export function isWorkerMessage(value: unknown): value is WorkerMessage {
  return typeof value === 'object' && value !== null && 'type' in value && value.type === 'ready';
}

/** The platform is in the parent: without it there is nobody to drain for. */
export function leaveWithParent(): void {
  process.on('disconnect', () => process.exit(EXIT.failed));
}
