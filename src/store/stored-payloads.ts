// Inputs and outputs that are stored before the operation that gives them to their jobs, and the files that keep them.
import type { PayloadFileError } from './store.ts';
import type { JobKey } from './stored-records.ts';

export type PayloadKind = 'input' | 'output' | 'chunks';

/** A payload that no job has: of an upload under way, or yet to be deleted. */
export interface UnusedPayload extends JobKey {
  kind: PayloadKind;
  /** Tells the payloads of a job apart. */
  origin: number;
}

/** A payload that was stored in parts or in a file. No reader sees it before an operation gives it to its job. */
export interface StagedPayload extends UnusedPayload {
  kind: 'input' | 'output';
}

export interface UploadedPayload extends StagedPayload {
  /** Size of the whole payload. */
  bytes: number;
}

export type Payload = Uint8Array | UploadedPayload;

/** Files beside the database that keep large payloads. */
export interface PayloadFiles {
  /** False while the disk is full: the rules for a full disk hold for payloads in the database. */
  readonly isUsable: boolean;
  /**
   * Writes a piece of the file that `beginFile` has announced, the first one to a new file. Resolves when the piece is on
   * disk, and with the last one the whole file. A call that rejects has removed the file. @throws PayloadFileError
   */
  write(payload: StagedPayload, piece: FilePiece): Promise<void>;
  /** Fills the part from this place of the file on. False if the file is missing or too short. @throws PayloadFileError */
  read(payload: StagedPayload, at: number, part: Uint8Array): Promise<boolean>;
  /** Reports that the file of a job's payload is missing or too short. @returns the error for the caller */
  reportLost(payload: StagedPayload): PayloadFileError;
  /** Removes the files, also for the time after a power failure. @returns those that could not be removed */
  remove(payloads: readonly StagedPayload[]): Promise<StagedPayload[]>;
}

export interface FilePiece {
  /** Bytes of the file before the piece. */
  at: number;
  bytes: Uint8Array;
  isLast: boolean;
}
