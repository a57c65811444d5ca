# Shared functions of the parts in tests/parts. `./test` sources this file, then a part, and calls the part's function `run`.
#
# A part has a header (What, Needs, Minutes: the budget, or Long: the budget under `./test long`) and functions:
#   run       its steps
#   missing   prints the packages that the part would install; prints nothing if all are installed
#   one NAME  runs one test of a step

install=${VELLUM_TEST_INSTALL:-yes}
long=${VELLUM_TEST_LONG:-no}
cache=${VELLUM_TEST_CACHE:-.test-cache}
target=${CARGO_TARGET_DIR:-target}
vellum=$target/debug/vellum

missing() { :; }
have() { command -v "$1" >/dev/null; }
has_postgresql() { compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || have initdb; }
has_python_packages() { [ -e "$cache/clients-python/ready" ]; }

# Installs Debian packages, except with --no-install.
install_debian() { [ "$install" = no ] || { apt-get update -qq && apt-get install -y -qq "$@"; }; }

# Tests start private clusters: the package must not create one.
install_postgresql() {
    if [ "$install" = yes ] && ! has_postgresql; then
        install_debian postgresql-common
        sed -i 's/^#*create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
        install_debian postgresql
    fi
}

# Builds the server and the lab.
build_program() { cargo build --workspace --quiet; }

# step NAME COMMAND…: runs a command, counts its tests, and continues after a failure.
step() {
    local name=$1 log status=0 begin=$SECONDS
    shift
    [ -z "${VELLUM_TEST_STEP:-}" ] || [ "$VELLUM_TEST_STEP" = "$name" ] || return 0
    echo "-- $name"
    log=$VELLUM_TEST_RESULTS.$name.log
    "$@" 2>&1 | tee "$log" || status=${PIPESTATUS[0]}
    count_tests "$log" "$status" >>"$VELLUM_TEST_RESULTS"
    # Names of single failed tests, or else of the step.
    if [ "$status" != 0 ]; then
        local names
        names=$(failed_tests "$log")
        [ -n "$names" ] || names=$VELLUM_TEST_PART/$name
        while read -r each; do echo "FAILED $each" >>"$VELLUM_TEST_RESULTS"; done <<<"$names"
    fi
    rm -f "$log"
    echo "-- $name: exit code $status, $((SECONDS - begin)) s"
}

# Counts passed, failed and skipped tests in the output of cargo test, unittest, pytest, Node.js, Go, Maven
# and the runners in tests/. A command without counts is one test.
count_tests() {
    awk -v status="$2" '
        { gsub(/\033\[[0-9;]*m/, "") }
        /^test result: / { passed += $4; failed += $6; skipped += $8; next }
        /^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/ { passed += $1; failed += $3; skipped += $5; next }
        /^Ran [0-9]+ tests? in / { passed += $2; next }
        /^(OK|FAILED) \(/ {
            if (match($0, /skipped=[0-9]+/)) { n = substr($0, RSTART + 8, RLENGTH - 8); skipped += n; passed -= n }
            rest = $0
            while (match(rest, /(failures|errors)=[0-9]+/)) {
                n = substr(rest, RSTART, RLENGTH); sub(/.*=/, "", n); failed += n; passed -= n
                rest = substr(rest, RSTART + RLENGTH)
            }
            next
        }
        /^=* ?[0-9]+ (passed|failed|skipped|errors?|xfailed|warnings?).* in [0-9.]+s/ {
            rest = $0
            while (match(rest, /[0-9]+ (passed|failed|skipped|error)/)) {
                split(substr(rest, RSTART, RLENGTH), word, " ")
                if (word[2] == "passed") passed += word[1]
                else if (word[2] == "skipped") skipped += word[1]
                else failed += word[1]
                rest = substr(rest, RSTART + RLENGTH)
            }
            next
        }
        /^(ℹ|#) (pass|fail|skipped) [0-9]+$/ {
            if ($2 == "pass") passed += $3; else if ($2 == "fail") failed += $3; else skipped += $3
            next
        }
        /^ok  ?\t/ { passed++; next }
        /^FAIL\t/ { failed++; next }
        /Tests run: [0-9]+, Failures: [0-9]+, Errors: [0-9]+, Skipped: [0-9]+ *$/ {
            gsub(/[^0-9 ]/, ""); split($0, run, " ")
            passed += run[1] - run[2] - run[3] - run[4]; failed += run[2] + run[3]; skipped += run[4]
            next
        }
        /^skipped: |skipped: it is not installed|skipped: it isn/ { skipped++ }
        END {
            if (status == 0 && passed + failed + skipped == 0) passed = 1
            if (status != 0 && failed == 0) failed = 1
            print "COUNTS", passed + 0, failed + 0, skipped + 0
        }' "$1"
}

# Prints the failed tests by name, in the form for `./test one`.
failed_tests() {
    sed -n -e 's/\x1b\[[0-9;]*m//g' \
        -e 's/^test \(.*[^ ]\) \.\.\. FAILED$/\1/p' \
        -e "s|^\([a-z]*\) on [a-z-]*: [0-9]* passed, [1-9][0-9]* failed.*|$VELLUM_TEST_PART/\1|p" \
        -e "s|^\([a-z]*\): FAILED.*|$VELLUM_TEST_PART/\1|p" "$1" | sort -u
}
