// The public API for handlers whose model runs in a process of its own: `millrace/process`.

export type { ParkResult, ParkWay } from './base/process/parkables.ts';
export type { Blame } from './process/calls.ts';
export { ModelCallError, ModelProcessError, ModelTimeoutError } from './process/calls.ts';
export type { ProcessLog } from './process/messages.ts';
export {
  type BatchItem,
  createModelProcess,
  type ModelCallOptions,
  type ModelProcess,
  type ModelStartOptions,
} from './process/model-process.ts';
export type { ModelProcessOptions } from './process/options.ts';
export { NoRoomError, type ParkOptions, ParkRefusedError } from './process/parking.ts';
