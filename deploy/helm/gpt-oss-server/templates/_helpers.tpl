{{- define "gpt-oss-server.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gpt-oss-server.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpt-oss-server.labels" -}}
{{ include "gpt-oss-server.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "gpt-oss-server.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "gpt-oss-server.fullname" .) }}
{{- end -}}

{{- define "gpt-oss-server.keysSecret" -}}
{{- if .Values.apiKeys.existingSecret -}}
{{ .Values.apiKeys.existingSecret }}
{{- else if .Values.apiKeys.file -}}
{{ include "gpt-oss-server.fullname" . }}-keys
{{- end -}}
{{- end -}}

{{/* The names of the Service, and those of the operator: the server refuses requests to other names. */}}
{{- define "gpt-oss-server.hosts" -}}
{{- $name := include "gpt-oss-server.fullname" . -}}
{{- $own := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) -}}
{{- $own = append $own (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{- join "," (concat $own .Values.hosts) -}}
{{- end -}}
