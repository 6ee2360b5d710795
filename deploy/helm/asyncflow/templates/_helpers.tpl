{{/* The name of everything: the release's. */}}
{{- define "asyncflow.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The labels of all objects. */}}
{{- define "asyncflow.labels" -}}
app.kubernetes.io/name: asyncflow
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The labels that select the pods of a part: api, dispatcher or migrate. */}}
{{- define "asyncflow.selector" -}}
app.kubernetes.io/name: asyncflow
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "asyncflow.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "asyncflow.publicURL" -}}
{{- .Values.publicURL | default (printf "http://%s.%s.svc:%v" (include "asyncflow.name" .)
  .Release.Namespace .Values.service.port) -}}
{{- end -}}

{{/* How long a pod has to end: longer than the program needs by its settings. */}}
{{- define "asyncflow.termination" -}}
{{- add (max .Values.graceSeconds (add .Values.drainDelaySeconds 5)) 15 -}}
{{- end -}}

{{/* Variables that come from Secrets. */}}
{{- define "asyncflow.secretEnv" -}}
{{- range $variable, $from := . }}
- name: {{ $variable }}
  valueFrom:
    secretKeyRef:
      name: {{ $from.name }}
      key: {{ $from.key }}
      {{- if $from.optional }}
      optional: true
      {{- end }}
{{- end }}
{{- end -}}

{{- define "asyncflow.configEnv" -}}
{{- range $variable, $value := . }}
- name: {{ $variable }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* What every pod may do: nothing but run as nobody, with a disk that it can't write to. */}}
{{- define "asyncflow.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "asyncflow.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* The Deployment of a part, api or dispatcher: a dict of root, part and roles. */}}
{{- define "asyncflow.deployment" -}}
{{- $ := .root -}}
{{- $nodes := index $.Values .part -}}
{{- $api := eq .part "api" -}}
{{- $selector := include "asyncflow.selector" . -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "asyncflow.name" $ }}-{{ .part }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "asyncflow.labels" $ | nindent 4 }}
    app.kubernetes.io/component: {{ .part }}
spec:
  replicas: {{ $nodes.replicas }}
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  strategy:
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  template:
    metadata:
      labels:
        {{- include "asyncflow.labels" $ | nindent 8 }}
        app.kubernetes.io/component: {{ .part }}
      {{- with $nodes.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "asyncflow.podSecurity" $ | nindent 6 }}
      terminationGracePeriodSeconds: {{ include "asyncflow.termination" $ }}
      topologySpreadConstraints:
        {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
        - maxSkew: 1
          topologyKey: {{ . }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- $selector | nindent 14 }}
        {{- end }}
      containers:
        - name: asyncflow
          image: {{ include "asyncflow.image" $ }}
          imagePullPolicy: {{ $.Values.image.pullPolicy }}
          args: [serve]
          env:
            - name: ASYNCFLOW_ROLES
              value: {{ .roles }}
            {{- if $api }}
            - name: ASYNCFLOW_LISTEN
              value: ":8080"
            {{- end }}
            - name: ASYNCFLOW_METRICS
              value: ":9090"
            - name: ASYNCFLOW_PUBLIC_URL
              value: {{ include "asyncflow.publicURL" $ }}
            - name: ASYNCFLOW_GRACE
              value: {{ $.Values.graceSeconds }}s
            - name: ASYNCFLOW_DRAIN_DELAY
              value: {{ $.Values.drainDelaySeconds }}s
            - name: GOMEMLIMIT
              value: {{ $nodes.goMemLimit }}
            {{- include "asyncflow.configEnv" $.Values.config | nindent 12 }}
            {{- if $api }}
            {{- include "asyncflow.configEnv" $.Values.apiConfig | nindent 12 }}
            {{- end }}
            {{- include "asyncflow.secretEnv" $.Values.secrets | nindent 12 }}
            {{- if $api }}
            {{- include "asyncflow.secretEnv" $.Values.apiSecrets | nindent 12 }}
            {{- end }}
          ports:
            {{- if $api }}
            - name: http
              containerPort: 8080
            {{- end }}
            - name: metrics
              containerPort: 9090
          # The address of the metrics answers until the process ends, the API only until it has
          # drained.
          startupProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 2
            failureThreshold: 30
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 5
          readinessProbe:
            httpGet: {path: /readyz, port: {{ if $api }}http{{ else }}metrics{{ end }}}
            periodSeconds: 2
            timeoutSeconds: 3
            failureThreshold: 2
          resources:
            {{- toYaml $nodes.resources | nindent 12 }}
          {{- include "asyncflow.containerSecurity" $ | nindent 10 }}
          {{- if and $api $.Values.apiFiles }}
          volumeMounts:
            - name: files
              mountPath: /etc/asyncflow/files
              readOnly: true
          {{- end }}
      {{- if and $api $.Values.apiFiles }}
      volumes:
        - name: files
          secret:
            secretName: {{ $.Values.apiFiles }}
            defaultMode: 288 # 0440
      {{- end }}
      {{- with $nodes.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $nodes.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $nodes.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}
