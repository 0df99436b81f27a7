# What: servers for the tests of 'gpuimg publish': real ones of Debian's packages, on loopback.
# Why:  several bats files need the same ones; each has a port of its own and state that goes away.
# How:  'load ../lib/servers' after common; start in setup_file, stop in teardown_file.
# shellcheck shell=bash

# --- What all of them share -------------------------------------------------------------------

servers_begin() {
	SERVERS=$(mktemp -d /tmp/gpuimg-servers-XXXXXX)
	chmod 755 "$SERVERS" # servers run as users of their own
	export SERVERS
	: >"$SERVERS/pids"
}

# Only what we started, by its number; children of ours that are left have the same group.
servers_end() {
	local pid
	[ -n "${SERVERS:-}" ] || return 0
	while read -r pid; do
		kill "$pid" 2>/dev/null || true
	done < <(tac "$SERVERS/pids")
	while read -r pid; do
		for _ in $(seq 100); do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.1
		done
		kill -9 "$pid" 2>/dev/null || true
	done <"$SERVERS/pids"
	if [ -e "$SERVERS/swift-conf-is-ours" ]; then rm -f /etc/swift/swift.conf; fi
	rm -rf "$SERVERS"
}

need_programs() {
	local program
	for program; do
		command -v "$program" >/dev/null || skip "'$program' is not installed"
	done
}

free_port() {
	python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# server_run NAME COMMAND...: in the background, its output to $SERVERS/NAME.log.
server_run() {
	local name=$1
	shift
	"$@" >>"$SERVERS/$name.log" 2>&1 3>&- 4>&- </dev/null &
	echo $! >>"$SERVERS/pids"
	echo $! >"$SERVERS/$name.pid"
}

# server_wait NAME URL: until it answers, whatever it answers.
server_wait() {
	for _ in $(seq 300); do
		curl -s -o /dev/null --max-time 2 "$2" && return 0
		kill -0 "$(cat "$SERVERS/$1.pid")" 2>/dev/null || break
		sleep 0.1
	done
	echo "$1 does not answer at $2"
	tail -n 20 "$SERVERS/$1.log"
	return 1
}

# server_file FILE: until the server has made it.
server_file() {
	for _ in $(seq 200); do
		[ ! -e "$1" ] || return 0
		sleep 0.05
	done
	echo "'$1' did not come" >&2
	return 1
}

# A user alice with password 's3cret-password'.
server_htpasswd() {
	echo "alice:$(openssl passwd -apr1 s3cret-password)"
}

# start_gate NAME PORT: exports GATE_PORT and GATE, see tests/publish/gate.py.
start_gate() {
	GATE=$SERVERS/gate-$1
	mkdir -p "$GATE"
	server_run "gate-$1" python3 "$REPO/tests/publish/gate.py" "$2" "$GATE"
	server_file "$GATE/port"
	GATE_PORT=$(cat "$GATE/port")
	export GATE GATE_PORT
}

gate_rule() { # "bytes N", "line REGEX"…
	rm -f "$GATE/held" "$GATE/drop"
	echo "$*" >"$GATE/rule.new"
	mv "$GATE/rule.new" "$GATE/rule"
}

gate_open() {
	rm -f "$GATE/rule"
}

gate_drop() { # what is held never comes: whoever sent it was killed
	: >"$GATE/drop"
	rm -f "$GATE/rule"
	sleep 0.2 # the gate looks each 20 ms
}

gate_wait() { # until something is held
	for _ in $(seq 600); do
		[ ! -e "$GATE/held" ] || return 0
		sleep 0.05
	done
	echo "nothing came to the gate's rule: $(cat "$GATE/rule")"
	return 1
}

# --- OCI registries: docker-registry, open, with htpasswd, with a token server -------------------

# oci_registry DIR [htpasswd|token [SECONDS]]: starts one below DIR; DIR/port, DIR/log. The user is
# alice with $OCI_PASSWORD; tokens are good for SECONDS.
oci_registry() {
	local dir=$1 auth=${2:-} seconds=${3:-60} port
	mkdir -p "$dir/data"
	port=$(free_port)
	cat >"$dir/config.yml" <<-END
		version: 0.1
		log: {level: warn}
		storage:
		  filesystem: {rootdirectory: $dir/data}
		  delete: {enabled: true}
		http: {addr: "127.0.0.1:$port", secret: for-tests}
	END
	case $auth in
	htpasswd)
		htpasswd -Bbn alice "$OCI_PASSWORD" >"$dir/htpasswd"
		printf 'auth: {htpasswd: {realm: "registry, for tests", path: %s}}\n' \
			"$dir/htpasswd" >>"$dir/config.yml"
		;;
	token)
		oci_token_server "$dir/tokens.d" "$seconds"
		printf 'auth: {token: {realm: "http://127.0.0.1:%s/token", service: "registry, for tests", issuer: "token server for tests", rootcertbundle: %s}}\n' \
			"$(cat "$dir/tokens.d/port")" "$dir/tokens.d/sign.crt" >>"$dir/config.yml"
		;;
	esac
	echo "$port" >"$dir/port"
	server_run "registry-$port" docker-registry serve "$dir/config.yml"
	ln -s "$SERVERS/registry-$port.log" "$dir/log"
	server_wait "registry-$port" "http://127.0.0.1:$port/v2/"
}

# oci_token_server DIR SECONDS: tests/publish/token-server.py with a key of its own.
oci_token_server() {
	local dir=$1
	mkdir -p "$dir"
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=tokens-for-tests \
		-keyout "$dir/sign.key" -out "$dir/sign.crt" 2>/dev/null
	echo "alice:$OCI_PASSWORD" >"$dir/users"
	server_run tokens python3 "$REPO/tests/publish/token-server.py" "$dir" "$2"
	server_file "$dir/port"
}

# server_gate DIR BYTES_PER_SECOND [RULE...]: a gate before DIR's registry, 0: as fast as can be; prints
# its port. DIR/gate is its directory. What an earlier one holds stays held.
server_gate() {
	local dir
	dir=$(mktemp -d "$1/gate-XXXXXX")
	ln -sfn "$dir" "$1/gate"
	[ $# -le 2 ] || echo "${*:3}" >"$dir/rule"
	server_run "${dir##*/}" python3 "$REPO/tests/publish/gate.py" "$(cat "$1/port")" "$dir" "$2"
	server_file "$dir/port"
	cat "$dir/port"
}

# Requests that write, as the registry's access log has them.
oci_writes() { # directory
	grep -cE '"(POST|PUT|PATCH|DELETE) /v2/' "$1/log" || true
}

# --- nginx with DAV, and apache2 with mod_dav ------------------------------------------------

start_nginx() {
	local dir=$SERVERS/nginx
	NGINX_PORT=$(free_port)
	mkdir -p "$dir/root" "$dir/temp"
	server_htpasswd >"$dir/users"
	chown -R www-data "$dir"
	cat >"$dir/nginx.conf" <<-CONF
		load_module /usr/lib/nginx/modules/ngx_http_dav_ext_module.so;
		daemon off;
		user www-data;
		pid $dir/pid;
		error_log $dir/error.log;
		events {}
		http {
			log_format short '\$request_method \$uri \$status \$request_length';
			access_log $dir/access.log short;
			client_body_temp_path $dir/temp;
			client_max_body_size 0;
			server {
				listen 127.0.0.1:$NGINX_PORT;
				root $dir/root;
				location / {
					dav_methods PUT DELETE MKCOL COPY MOVE;
					create_full_put_path on;
					limit_except GET HEAD {
						auth_basic images;
						auth_basic_user_file $dir/users;
					}
				}
			}
		}
	CONF
	server_run nginx nginx -e "$dir/error.log" -c "$dir/nginx.conf"
	server_wait nginx "http://127.0.0.1:$NGINX_PORT/"
	export NGINX_PORT NGINX_ROOT=$dir/root NGINX_LOG=$dir/access.log
}

start_apache() {
	local dir=$SERVERS/apache module
	APACHE_PORT=$(free_port)
	mkdir -p "$dir/root" "$dir/lock"
	server_htpasswd >"$dir/users"
	chown -R www-data "$dir"
	{
		for module in mpm_event authn_core authn_file authz_core authz_user auth_basic dav dav_fs; do
			echo "LoadModule ${module}_module /usr/lib/apache2/modules/mod_$module.so"
		done
		cat <<-CONF
			ServerRoot $dir
			ServerName localhost
			Listen 127.0.0.1:$APACHE_PORT
			User www-data
			Group www-data
			PidFile $dir/pid
			DefaultRuntimeDir $dir
			ErrorLog $dir/error.log
			LogFormat "%m %U %>s" short
			CustomLog $dir/access.log short
			DocumentRoot $dir/root
			DavLockDB $dir/lock/db
			<Directory $dir/root>
				Dav On
				AuthType Basic
				AuthName images
				AuthUserFile $dir/users
				<LimitExcept GET HEAD>
					Require valid-user
				</LimitExcept>
				<Limit GET HEAD>
					Require all granted
				</Limit>
			</Directory>
		CONF
	} >"$dir/apache.conf"
	server_run apache apache2 -f "$dir/apache.conf" -DFOREGROUND
	server_wait apache "http://127.0.0.1:$APACHE_PORT/"
	export APACHE_PORT APACHE_ROOT=$dir/root APACHE_LOG=$dir/access.log
}

# --- OpenStack Swift with s3api: checks signatures to the letter -----------------------------

swift_ring() { # NAME PORT
	(
		cd "$SERVERS/swift" || exit
		swift-ring-builder "$1.builder" create 4 1 1
		swift-ring-builder "$1.builder" add "r1z1-127.0.0.1:$2/sda" 1
		swift-ring-builder "$1.builder" rebalance
	) >>"$SERVERS/swift-rings.log" 2>&1
}

swift_store() { # NAME PORT: account, container or object server
	cat >"$SERVERS/swift/$1.conf" <<-CONF
		[DEFAULT]
		bind_ip = 127.0.0.1
		bind_port = $2
		devices = $SERVERS/swift/devices
		mount_check = false
		user = swift
		swift_dir = $SERVERS/swift
		workers = 1
		[pipeline:main]
		pipeline = $1-server
		[app:$1-server]
		use = egg:swift#$1
	CONF
}

swift_proxy() {
	cat >"$SERVERS/swift/proxy.conf" <<-CONF
		[DEFAULT]
		bind_ip = 127.0.0.1
		bind_port = $SWIFT_PORT
		user = swift
		swift_dir = $SERVERS/swift
		workers = 2
		[pipeline:main]
		pipeline = catch_errors gatekeeper healthcheck cache listing_formats bulk tempurl ratelimit s3api tempauth copy slo dlo versioned_writes proxy-logging proxy-server
		[app:proxy-server]
		use = egg:swift#proxy
		account_autocreate = true
		[filter:tempauth]
		use = egg:swift#tempauth
		user_test_tester = s3cret-swift-key .admin
		[filter:s3api]
		use = egg:swift#s3api
		location = us-east-1
		[filter:cache]
		use = egg:swift#memcache
		memcache_servers = 127.0.0.1:$1
		$(for f in catch_errors gatekeeper healthcheck listing_formats bulk tempurl ratelimit copy slo dlo versioned_writes proxy_logging; do
			printf '[filter:%s]\nuse = egg:swift#%s\n' "${f/proxy_logging/proxy-logging}" "$f"
		done)
	CONF
}

start_swift() {
	local memcached account container object name
	SWIFT_PORT=$(free_port)
	mkdir -p "$SERVERS/swift/devices/sda" /etc/swift
	if [ ! -e /etc/swift/swift.conf ]; then # its place is fixed
		: >"$SERVERS/swift-conf-is-ours"
		cat >/etc/swift/swift.conf <<-CONF
			[swift-hash]
			swift_hash_path_suffix = gpuimg
			swift_hash_path_prefix = tests
			[storage-policy:0]
			name = Policy-0
			default = yes
		CONF
	fi
	account=$(free_port) container=$(free_port) object=$(free_port) memcached=$(free_port)
	swift_ring account "$account"
	swift_ring container "$container"
	swift_ring object "$object"
	swift_store account "$account"
	swift_store container "$container"
	swift_store object "$object"
	swift_proxy "$memcached"
	chown -R swift "$SERVERS/swift"
	server_run memcached memcached -l 127.0.0.1 -p "$memcached" -u memcache -m 32
	for name in account container object; do
		server_run "swift-$name" "swift-$name-server" "$SERVERS/swift/$name.conf" --verbose
	done
	server_run swift swift-proxy-server "$SERVERS/swift/proxy.conf" --verbose
	# the proxy answers before those behind it do
	server_wait swift-account "http://127.0.0.1:$account/"
	server_wait swift-container "http://127.0.0.1:$container/"
	server_wait swift-object "http://127.0.0.1:$object/"
	server_wait swift "http://127.0.0.1:$SWIFT_PORT/healthcheck"
	export SWIFT_PORT SWIFT_LOG=$SERVERS/swift.log
}

swift_token() {
	curl -s -D - -o /dev/null -H 'X-Storage-User: test:tester' \
		-H 'X-Storage-Pass: s3cret-swift-key' "http://127.0.0.1:$SWIFT_PORT/auth/v1.0" |
		tr -d '\r' | awk 'tolower($1) == "x-auth-token:" { print $2 }'
}

# swift_curl METHOD PATH [CURL_OPTION...]: by Swift's own protocol, which shares neither signatures
# nor code with S3: PATH from the container on.
swift_curl() {
	local method=$1 path=$2 token
	shift 2
	token=$(swift_token)
	curl -s --fail -X "$method" -H "X-Auth-Token: $token" "$@" \
		"http://127.0.0.1:$SWIFT_PORT/v1/AUTH_test/$path"
}

# --- OpenStack Keystone and Glance: sqlite, a file store, one user alice in project 'images' ------

keystone_admin() { # METHOD PATH [JSON]: as the administrator
	curl -sS -f -X "$1" -H "X-Auth-Token: $KEYSTONE_ADMIN" -H 'Content-Type: application/json' \
		${3:+-d "$3"} "http://127.0.0.1:$KEYSTONE_PORT/v3$2"
}

keystone_id() { # KIND PATH JSON: the id of what is made
	keystone_admin POST "$2" "$3" | jq -er ".$1.id"
}

# keystone_login USER PASSWORD PROJECT: a token.
keystone_login() {
	curl -sS -f -o /dev/null -D - -H 'Content-Type: application/json' -d '{"auth": {"identity":
		{"methods": ["password"], "password": {"user": {"name": "'"$1"'", "domain": {"id": "default"},
		"password": "'"$2"'"}}}, "scope": {"project": {"name": "'"$3"'", "domain": {"id": "default"}}}}}' \
		"http://127.0.0.1:$KEYSTONE_PORT/v3/auth/tokens" |
		tr -d '\r' | sed -n 's/^X-Subject-Token: //Ip'
}

keystone_conf() { # LOG TOKEN_LIFE_SECONDS
	cat <<-CONF
		[DEFAULT]
		log_file = $SERVERS/keystone/$1
		[database]
		connection = sqlite:///$SERVERS/keystone/keystone.db
		[token]
		provider = fernet
		expiration = $2
		[fernet_tokens]
		key_repository = $SERVERS/keystone/fernet
		[credential]
		key_repository = $SERVERS/keystone/credential
	CONF
}

keystone_manage() {
	keystone-manage --config-file "$SERVERS/keystone/keystone.conf" "$@" \
		>>"$SERVERS/keystone-manage.log" 2>&1
}

# A second one on the same database gives tokens that live for 15 seconds: on a busy host three requests
# with one need several.
start_keystone() {
	local dir=$SERVERS/keystone url
	KEYSTONE_PORT=$(free_port)
	KEYSTONE_SHORT_PORT=$(free_port)
	url=http://127.0.0.1:$KEYSTONE_PORT/v3/
	mkdir -p "$dir"
	mkdir -m 700 "$dir/fernet" "$dir/credential"
	keystone_conf keystone.log 3600 >"$dir/keystone.conf"
	keystone_conf short.log 15 >"$dir/short.conf"
	keystone_manage db_sync
	keystone_manage fernet_setup --keystone-user "$(id -un)" --keystone-group "$(id -gn)"
	keystone_manage credential_setup --keystone-user "$(id -un)" --keystone-group "$(id -gn)"
	keystone_manage bootstrap --bootstrap-password s3cret-admin --bootstrap-region-id RegionOne \
		--bootstrap-admin-url "$url" --bootstrap-internal-url "$url" --bootstrap-public-url "$url"
	# Without it writers block each other for longer than they wait.
	sqlite3 "$dir/keystone.db" 'PRAGMA journal_mode=WAL;' >/dev/null
	server_run keystone keystone-wsgi-public --host 127.0.0.1 --port "$KEYSTONE_PORT" -- \
		--config-file "$dir/keystone.conf"
	server_run keystone-short keystone-wsgi-public --host 127.0.0.1 --port "$KEYSTONE_SHORT_PORT" -- \
		--config-file "$dir/short.conf"
	server_wait keystone "$url"
	server_wait keystone-short "http://127.0.0.1:$KEYSTONE_SHORT_PORT/v3/"
	KEYSTONE_ADMIN=$(keystone_login admin s3cret-admin admin)
	export KEYSTONE_PORT KEYSTONE_SHORT_PORT KEYSTONE_ADMIN
}

keystone_people() {
	local user member
	OS_TEST_PROJECT=$(keystone_id project /projects '{"project": {"name": "images"}}')
	user=$(keystone_id user /users \
		'{"user": {"name": "alice", "password": "s3cret-alice", "domain_id": "default"}}')
	member=$(keystone_admin GET '/roles?name=member' | jq -er '.roles[0].id')
	keystone_admin PUT "/projects/$OS_TEST_PROJECT/users/$user/roles/$member"
	KEYSTONE_ALICE=$user
	export OS_TEST_PROJECT KEYSTONE_ALICE
}

# keystone_credential: "ID SECRET" of an application credential of alice.
keystone_credential() {
	curl -sS -f -H "X-Auth-Token: $(keystone_login alice s3cret-alice images)" \
		-H 'Content-Type: application/json' \
		-d '{"application_credential": {"name": "publish", "secret": "s3cret-credential"}}' \
		"http://127.0.0.1:$KEYSTONE_PORT/v3/users/$KEYSTONE_ALICE/application_credentials" |
		jq -er '.application_credential | .id + " " + .secret'
}

glance_conf() {
	cat <<-CONF
		[DEFAULT]
		bind_host = 127.0.0.1
		bind_port = $GLANCE_PORT
		workers = 1
		enabled_backends = fs:file
		enabled_import_methods = [glance-direct,web-download]
		[glance_store]
		default_backend = fs
		[fs]
		filesystem_store_datadir = $SERVERS/glance/store
		[os_glance_tasks_store]
		filesystem_store_datadir = $SERVERS/glance/tasks
		[os_glance_staging_store]
		filesystem_store_datadir = $SERVERS/glance/staging
		[database]
		connection = sqlite:///$SERVERS/glance/glance.db
		[paste_deploy]
		flavor = keystone
		config_file = /etc/glance/glance-api-paste.ini
		[keystone_authtoken]
		auth_url = http://127.0.0.1:$KEYSTONE_PORT/v3
		www_authenticate_uri = http://127.0.0.1:$KEYSTONE_PORT/v3
		auth_type = password
		username = admin
		password = s3cret-admin
		project_name = admin
		user_domain_id = default
		project_domain_id = default
	CONF
}

# glance_endpoint SERVICE REGION PORT
glance_endpoint() {
	[ "$2" = RegionOne ] || keystone_admin POST /regions '{"region": {"id": "'"$2"'"}}' >/dev/null
	keystone_admin POST /endpoints '{"endpoint": {"service_id": "'"$1"'", "region_id": "'"$2"'",
		"interface": "public", "url": "http://127.0.0.1:'"$3"'"}}' >/dev/null
}

# Two regions of one store: RegionOne, and Gated behind start_gate.
start_glance() {
	local dir=$SERVERS/glance service
	GLANCE_PORT=$(free_port)
	mkdir -p "$dir/store" "$dir/tasks" "$dir/staging"
	glance_conf >"$dir/glance.conf"
	glance-manage --config-file "$dir/glance.conf" db_sync >>"$SERVERS/glance-manage.log" 2>&1
	sqlite3 "$dir/glance.db" 'PRAGMA journal_mode=WAL;' >/dev/null
	server_run glance glance-api --config-file "$dir/glance.conf"
	server_wait glance "http://127.0.0.1:$GLANCE_PORT/"
	start_gate glance "$GLANCE_PORT"
	service=$(keystone_id service /services '{"service": {"name": "glance", "type": "image"}}')
	glance_endpoint "$service" RegionOne "$GLANCE_PORT"
	glance_endpoint "$service" Gated "$GATE_PORT"
	export GLANCE_PORT GLANCE_LOG=$SERVERS/glance.log GLANCE_STORE=$dir/store
}

# glance_curl METHOD PATH [CURL_OPTION...]: as alice, by curl, which shares no code with us.
glance_curl() {
	local method=$1 path=$2
	shift 2
	curl -sS -X "$method" -H "X-Auth-Token: $(keystone_login alice s3cret-alice images)" "$@" \
		"http://127.0.0.1:$GLANCE_PORT/v2$path"
}

# --- Mocks and a server that fails on demand: tests/publish/mock_http.py ------------------------

# start_mock NAME SCRIPT: $SERVERS/NAME is its directory; with cert.pem and key.pem there it speaks
# TLS. Prints its port.
start_mock() {
	local dir=$SERVERS/$1
	mkdir -p "$dir"
	: >"$dir/log"
	server_run "$1" python3 "$REPO/tests/publish/$2" "$dir"
	server_file "$dir/port"
	cat "$dir/port"
}

# mock_faults NAME RULES: a JSON list; mock_reset NAME: no rules, an empty log.
mock_faults() {
	rm -f "$SERVERS/$1/fired"
	echo "$2" >"$SERVERS/$1/faults.new"
	mv "$SERVERS/$1/faults.new" "$SERVERS/$1/faults"
}

mock_no_faults() {
	rm -f "$SERVERS/$1/faults"
}

mock_reset() {
	rm -f "$SERVERS/$1/faults" "$SERVERS/$1/fired" "$SERVERS/$1/settings.json" "$SERVERS/$1/dates"
	: >"$SERVERS/$1/log"
}

mock_count() { # NAME REGEX: how many lines of its log are such
	grep -cE "$2" "$SERVERS/$1/log" || true
}

mock_writes() { # NAME
	mock_count "$1" '^(PUT|POST|PATCH|DELETE|MOVE|MKCOL) '
}

mock_wait() { # NAME FILE REGEX: until "log" or "fired" has it
	for _ in $(seq 400); do
		grep -qsE "$3" "$SERVERS/$1/$2" && return 0
		sleep 0.05
	done
	echo "nothing like '$3' in $1's $2:"
	cat "$SERVERS/$1/$2"
	return 1
}
