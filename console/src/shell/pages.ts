// The pages of the main navigation, and who may open them.
import { isOperator, may, mayAnywhere } from '../platform/session.ts';

export interface PageEntry {
  path: string;
  name: string;
  isShown: () => boolean;
}

/** The first group needs no name. */
export const PAGE_GROUPS: readonly { name?: string; entries: readonly PageEntry[] }[] = [
  {
    entries: [
      {
        path: '/',
        name: 'Overview',
        isShown: () => mayAnywhere('endpoints:read') || mayAnywhere('jobs:read'),
      },
      { path: '/failed-jobs', name: 'Failed jobs', isShown: () => mayAnywhere('jobs:read') },
      { path: '/batches', name: 'Batches', isShown: () => mayAnywhere('jobs:read') },
    ],
  },
  {
    name: 'Resources',
    entries: [
      { path: '/schedules', name: 'Schedules', isShown: () => may('jobs:read') },
      { path: '/shared-limits', name: 'Shared limits', isShown: () => may('endpoints:read') },
      { path: '/pods', name: 'Pods', isShown: () => may('pods:read') },
      { path: '/templates', name: 'Templates', isShown: () => may('endpoints:read') },
      { path: '/network-volumes', name: 'Network volumes', isShown: () => may('pods:read') },
      { path: '/registries', name: 'Registries', isShown: () => may('pods:read') },
    ],
  },
  {
    name: 'Account',
    entries: [
      { path: '/billing', name: 'Billing', isShown: () => may('endpoints:read') },
      { path: '/keys', name: 'Keys', isShown: () => may('keys:read') },
      { path: '/limits', name: 'Limits', isShown: () => true },
    ],
  },
  {
    name: 'Platform',
    entries: [
      { path: '/catalog', name: 'Catalog', isShown: () => may('endpoints:read') },
      { path: '/gpus', name: 'GPUs', isShown: () => isOperator() && may('pods:read') },
      { path: '/nodes', name: 'Nodes', isShown: () => isOperator() && may('pods:read') },
    ],
  },
];
