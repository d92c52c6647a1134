# Completion of hooprun, hoopinfo and the benchmarks: options as --help lists them, then files.
_hoop_complete() {
    local word=${COMP_WORDS[COMP_CWORD]} i
    COMPREPLY=()
    case $1 in *hooprun)
        # behind the program's name it is the program's business
        for ((i = 1; i < COMP_CWORD; i++)); do
            case ${COMP_WORDS[i]} in
            --tag-output | --tag_output | --nccl | --*=*) ;;
            --) return ;;
            -n[0-9]*) ;;
            -*) ((i++)) ; [[ ${COMP_WORDS[i]} != = ]] || ((i++)) ;;
            *) return ;;
            esac
        done
        ;;
    esac
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$1" --help 2>/dev/null |
            grep -oE '(^|[ ,\[|])--?[a-zA-Z][a-zA-Z_-]*' | tr -d ' ,[|' | sort -u)" -- "$word")
    fi
}
complete -o default -F _hoop_complete hooprun hoopinfo {all_reduce,reduce,reduce_scatter}_perf \
    {all_gather,gather,broadcast,scatter,alltoall,sendrecv}_perf
