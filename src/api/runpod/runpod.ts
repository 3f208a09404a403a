// RunPod's protocols as an adapter of the API: one for clients, one for workers.
import { RUNPOD_BASE } from '../../wire/routes/routes.ts';
import type { Adapter } from '../adapter.ts';
import { addBodyScope } from '../routes/operation-routes.ts';
import { composeRunpodRecord, RUNPOD_ERRORS, RUNPOD_FORMAT } from './client-forms.ts';
import { addRunpodClientRoutes } from './client-routes.ts';
import { addRunpodWorkerRoutes } from './worker-routes.ts';

export const runpod: Adapter = {
  serves: (url) => url.startsWith(`${RUNPOD_BASE}/`),
  errors: RUNPOD_ERRORS,
  addRoutes(app, parts) {
    addBodyScope(app, '*', (scope) => addRunpodClientRoutes(scope, parts));
    addBodyScope(app, '*', (scope) => addRunpodWorkerRoutes(scope, parts));
  },
  recordFormats: { [RUNPOD_FORMAT]: composeRunpodRecord },
};
