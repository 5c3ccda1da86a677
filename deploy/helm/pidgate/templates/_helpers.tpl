{{- define "pidgate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name }}{{ end -}}
{{- end -}}

{{- define "pidgate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pidgate.labels" -}}
{{ include "pidgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "pidgate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "pidgate.host" -}}
{{- .Values.front.service.advertise | default (printf "%s.%s.svc" (include "pidgate.name" .) .Release.Namespace) -}}
{{- end -}}

{{/* The names by which the admin address is called. */}}
{{- define "pidgate.hosts" -}}
{{- $name := include "pidgate.name" . -}}
{{- list (printf "%s-admin" $name) (printf "%s-admin.%s" $name .Release.Namespace) (printf "%s-admin.%s.svc" $name .Release.Namespace) | toJson -}}
{{- end -}}

{{/* pidgate.yaml; call with a dict of `root`, `listener` and `bootstrap`. */}}
{{- define "pidgate.file" -}}
{{- $root := .root -}}
{{- $admin := dict "bind" "0.0.0.0:9290" "hosts" (include "pidgate.hosts" $root | fromJsonArray) -}}
{{- if $root.Values.admin.existingSecret }}{{ $_ := set $admin "token_file" "/etc/pidgate/token" }}{{ end -}}
{{- $cluster := dict "bootstrap_servers" .bootstrap -}}
{{- if $root.Values.cluster.name }}{{ $_ := set $cluster "name" $root.Values.cluster.name }}{{ end -}}
{{- $listener := mergeOverwrite .listener (deepCopy $root.Values.listener) -}}
{{- $file := dict "cluster" $cluster "listeners" (list $listener) "quotas" $root.Values.quotas "state_dir" "/var/lib/pidgate" "admin" $admin -}}
{{- mergeOverwrite $file (deepCopy $root.Values.config) | toYaml -}}
{{- end -}}
