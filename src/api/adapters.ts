// The adapters of the API: the only file outside of their folders that knows them.
import type { BatchForms } from '../queue/batches/batch-form.ts';
import type { RecordFormats } from '../queue/records.ts';
import type { Adapter } from './adapter.ts';
import { OWN_FORMS } from './batch-form.ts';
import { openAi } from './openai/openai-routes.ts';
import { runpodManagement } from './runpod/management/management.ts';
import { runpod } from './runpod/runpod.ts';

/** If several serve a path, the first one does. */
export const ADAPTERS: readonly Adapter[] = [openAi, runpodManagement, runpod];

export const RECORD_FORMATS: RecordFormats = Object.assign(
  {},
  ...ADAPTERS.map(({ recordFormats }) => recordFormats),
);

/** Also Millrace's own. */
export const BATCH_FORMS: BatchForms = Object.assign(
  {},
  OWN_FORMS,
  ...ADAPTERS.map(({ batchForms }) => batchForms),
);
