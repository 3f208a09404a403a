// RunPod's REST API, version 2, as an adapter: the same records as Millrace's own API, in the shapes that RunPod documents.
// Its errors are those of Millrace's own API.
import { RESERVED_ENDPOINT_IDS } from '../../../wire/resources/fields.ts';
import type { Adapter } from '../../adapter.ts';
import { addBodyScope } from '../../routes/operation-routes.ts';
import { addManagedCatalog } from './catalog.ts';
import { addManaged, MANAGEMENT_BASE } from './managed-resource.ts';
import { addPodAction, managePods } from './pods.ts';
import { manageEndpoints } from './serverless.ts';
import { manageRegistries, manageVolumes } from './storage.ts';
import { manageTemplates } from './templates.ts';

/** Endpoints share the base, and none has such a name. */
const PATHS = new RegExp(`^${MANAGEMENT_BASE}/(${RESERVED_ENDPOINT_IDS.join('|')})(?=[/?]|$)`);

export const runpodManagement: Adapter = {
  serves: (url) => PATHS.test(url),
  addRoutes(app, { endpoints, pods, resources }) {
    if (!resources) return;
    const { catalog, records } = resources;
    const { networkVolumes, registries, templates } = records;
    const ofPods = { catalog, pods, templates };
    addBodyScope(app, '*', (scope) => {
      addManaged(scope, manageEndpoints({ catalog, endpoints, templates }));
      addManaged(scope, manageTemplates(templates));
      addManaged(scope, manageVolumes(networkVolumes));
      addManaged(scope, manageRegistries(registries));
      addManaged(scope, managePods(ofPods));
      addPodAction(scope, ofPods);
      addManagedCatalog(scope, resources);
    });
  },
};
