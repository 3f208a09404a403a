// Accounts with the rights of deploy/kubernetes/base/rbac.yaml, in a namespace of the tests.
import { readFileSync } from 'node:fs';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
import type { KubeAccess, KubeClient } from '../support/kubernetes/client.ts';

const RBAC_FILE = 'deploy/kubernetes/base/rbac.yaml';
const RBAC_API = '/apis/rbac.authorization.k8s.io/v1';

const ruleSchema = z.object({
  apiGroups: z.array(z.string()),
  resources: z.array(z.string()),
  verbs: z.array(z.string()),
});

const manifestSchema = z.looseObject({
  kind: z.string(),
  metadata: z.looseObject({ name: z.string(), namespace: z.string().optional() }),
  rules: z.array(ruleSchema).optional(),
  subjects: z.array(z.looseObject({ kind: z.string(), name: z.string() })).optional(),
});

export type Rule = z.infer<typeof ruleSchema>;
export type Manifest = z.infer<typeof manifestSchema>;

const PATHS: Readonly<Record<string, (namespace: string) => string>> = {
  ServiceAccount: (namespace) => `/api/v1/namespaces/${namespace}/serviceaccounts`,
  Role: (namespace) => `${RBAC_API}/namespaces/${namespace}/roles`,
  RoleBinding: (namespace) => `${RBAC_API}/namespaces/${namespace}/rolebindings`,
};

export function readManifests(path = RBAC_FILE): Manifest[] {
  return parseAllDocuments(readFileSync(path, 'utf8')).map((each) =>
    manifestSchema.parse(each.toJS()),
  );
}

/** Rights as `GROUP/RESOURCE VERB`. */
export function listRights(rules: readonly Rule[]): string[] {
  return rules
    .flatMap(({ apiGroups, resources, verbs }) =>
      apiGroups.flatMap((group) =>
        resources.flatMap((resource) => verbs.map((verb) => `${group}/${resource} ${verb}`)),
      ),
    )
    .sort();
}

/** Creates the objects of the file in the namespace. @returns the access of its account */
export async function createAccount(admin: KubeClient, namespace: string): Promise<KubeAccess> {
  for (const manifest of readManifests()) {
    const path = PATHS[manifest.kind]?.(namespace);
    if (path === undefined) throw new Error(`${manifest.kind} in ${RBAC_FILE}`);
    const metadata = { ...manifest.metadata, namespace };
    const subjects = manifest.subjects?.map((subject) => ({ ...subject, namespace }));
    await admin.create(path, { ...manifest, metadata, ...(subjects && { subjects }) });
  }
  return { ...admin.access, token: await requestToken(admin, namespace) };
}

/** A token of the account. */
export async function requestToken(admin: KubeClient, namespace: string): Promise<string> {
  const path = `/api/v1/namespaces/${namespace}/serviceaccounts/millrace/token`;
  const request = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} };
  const { status } = await admin.create(path, request);
  return z.looseObject({ token: z.string() }).parse(status).token;
}
