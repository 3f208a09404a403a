// Makes the Pods and claims of a StatefulSet from its templates, as its controller does.
import { z } from 'zod';
import type { KubeClient } from '../../support/kubernetes/client.ts';

const setSpec = z.looseObject({
  replicas: z.number(),
  serviceName: z.string(),
  template: z.looseObject({
    metadata: z.looseObject({ labels: z.record(z.string(), z.string()) }),
    spec: z.looseObject({ volumes: z.array(z.looseObject({})).default([]) }),
  }),
  volumeClaimTemplates: z
    .array(
      z.looseObject({ metadata: z.looseObject({ name: z.string() }), spec: z.looseObject({}) }),
    )
    .default([]),
});

/** Makes those of its Pods that do not exist. @returns the names of all */
export async function makePods(
  admin: KubeClient,
  namespace: string,
  name: string,
): Promise<string[]> {
  const set = await admin.get(`/apis/apps/v1/namespaces/${namespace}/statefulsets/${name}`);
  const { replicas, serviceName, template, volumeClaimTemplates } = setSpec.parse(set.spec);
  const core = `/api/v1/namespaces/${namespace}`;
  const names = Array.from({ length: replicas }, (_, index) => `${name}-${index}`);
  for (const pod of names) {
    if (await admin.find(`${core}/pods/${pod}`)) continue;
    const claims = volumeClaimTemplates.map(({ metadata, spec }) => ({
      ...{ volume: metadata.name, name: `${metadata.name}-${pod}`, spec },
    }));
    for (const { name: claim, spec } of claims) {
      if (await admin.find(`${core}/persistentvolumeclaims/${claim}`)) continue;
      await admin.create(`${core}/persistentvolumeclaims`, { metadata: { name: claim }, spec });
    }
    const volumes = claims.map(({ name: claimName, volume }) => ({
      ...{ name: volume, persistentVolumeClaim: { claimName } },
    }));
    await admin.create(`${core}/pods`, {
      metadata: {
        name: pod,
        labels: { ...template.metadata.labels, 'statefulset.kubernetes.io/pod-name': pod },
      },
      spec: {
        ...template.spec,
        ...{ hostname: pod, subdomain: serviceName },
        volumes: [...template.spec.volumes, ...volumes],
      },
    });
  }
  return names;
}
