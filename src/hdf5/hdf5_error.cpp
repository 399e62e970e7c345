// SPDX-License-Identifier: Apache-2.0
#include "hdf5_error.hpp"

#include "coeus/file/raw_file.hpp"
#include "hdf5_driver.hpp"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace coeus::hdf5 {

static_assert(std::endian::native == std::endian::little);

void be_quiet() {
    static std::once_flag once;
    std::call_once(once, [] {
        // File systems are often mounted without locks, and HDF5 then fails with ENOLCK, even if it is told
        // to ignore that. HDF5's locks are not needed: one program writes each file under a temporary name,
        // and renames it when it is complete. A property list would not apply to the targets of links. HDF5
        // reads the variable once, now.
        setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
        // at the end of the process HDF5 would use files whose close has failed, and crash (1.10.8); all
        // files are closed by their owners
        H5dont_atexit();
        H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    });
}

std::string reason(const std::string&) {
    std::string text;
    // H5E_WALK_UPWARD starts at the innermost call, which describes the cause best
    const auto take_first = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
        if (error->desc && *error->desc) static_cast<std::string*>(out)->assign(error->desc);
        return static_cast<std::string*>(out)->empty() ? 0 : 1;
    };
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &text);
    H5Eclear2(H5E_DEFAULT);
    const DriverFailure failure = take_driver_failure();
    if (!failure.read.empty()) throw ReadError(failure.read);
    if (!failure.other.empty()) return failure.other;
    return text.empty() ? "HDF5 gives no reason" : text;
}

bool exists(htri_t answer) {
    if (answer >= 0) return answer > 0;
    H5Eclear2(H5E_DEFAULT);
    if (const DriverFailure failure = take_driver_failure(); !failure.read.empty())
        throw ReadError(failure.read);
    return false;
}

namespace {

/// bfloat16: sign in bit 15, exponent of 8 bits from bit 7, mantissa of 7 bits from bit 0. A declared
/// floating-point type, so that h5dump and h5py print numbers.
hid_t make_bf16() {
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    // the fields must always fit the size: move them down first, then reduce the size
    if (type < 0 || H5Tset_fields(type, 15, 7, 8, 0, 7) < 0 || H5Tset_precision(type, 16) < 0 ||
        H5Tset_size(type, 2) < 0 || H5Tset_ebias(type, 127) < 0)
        return -1;
    return type;
}

hid_t make_f16() {
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (type < 0 || H5Tset_fields(type, 15, 10, 5, 0, 10) < 0 || H5Tset_precision(type, 16) < 0 ||
        H5Tset_size(type, 2) < 0 || H5Tset_ebias(type, 15) < 0)
        return -1;
    return type;
}

hid_t make(Type type) {
    switch (type) {
        case Type::f64: return H5Tcopy(H5T_IEEE_F64LE);
        case Type::f32: return H5Tcopy(H5T_IEEE_F32LE);
        case Type::f16: return make_f16();
        case Type::bf16: return make_bf16();
        case Type::i64: return H5Tcopy(H5T_STD_I64LE);
        case Type::i32: return H5Tcopy(H5T_STD_I32LE);
        case Type::u64: return H5Tcopy(H5T_STD_U64LE);
        case Type::u32: return H5Tcopy(H5T_STD_U32LE);
        case Type::u16: return H5Tcopy(H5T_STD_U16LE);
        case Type::u8: return H5Tcopy(H5T_STD_U8LE);
        case Type::other: break;
    }
    require(false, "an HDF5 type that cannot be written");
    return -1;
}

constexpr Type all_types[] = {Type::f64, Type::f32, Type::f16, Type::bf16, Type::i64,
                              Type::i32, Type::u64, Type::u32, Type::u16,  Type::u8};

}  // namespace

Handle make_type(Type type, const std::string& file) {
    return {check(make(type), "H5Tcopy", file), close_type};
}

Type recognise(hid_t stored) {
    for (Type type : all_types) {
        const Handle candidate = make_type(type, "");
        if (H5Tequal(stored, candidate.id()) > 0) return type;
    }
    return Type::other;
}

bool same_class(Type a, Type b) {
    const auto is_float = [](Type t) { return t <= Type::bf16; };
    return a != Type::other && b != Type::other && is_float(a) == is_float(b);
}

const char* name_of(Type type) {
    switch (type) {
        case Type::f64: return "float64";
        case Type::f32: return "float32";
        case Type::f16: return "float16";
        case Type::bf16: return "bfloat16";
        case Type::i64: return "int64";
        case Type::i32: return "int32";
        case Type::u64: return "uint64";
        case Type::u32: return "uint32";
        case Type::u16: return "uint16";
        case Type::u8: return "uint8";
        case Type::other: break;
    }
    return "another type";
}

int64_t size_of(Type type) {
    switch (type) {
        case Type::f64:
        case Type::i64:
        case Type::u64: return 8;
        case Type::f32:
        case Type::i32:
        case Type::u32: return 4;
        case Type::f16:
        case Type::bf16:
        case Type::u16: return 2;
        case Type::u8: return 1;
        case Type::other: break;
    }
    return 0;
}

Type type_of(Dtype dtype) {
    switch (dtype) {
        case Dtype::f64: return Type::f64;
        case Dtype::f32: return Type::f32;
        case Dtype::f16: return Type::f16;
        case Dtype::bf16: return Type::bf16;
        case Dtype::i64: return Type::i64;
        case Dtype::i32: return Type::i32;
        case Dtype::u8: return Type::u8;
        case Dtype::fp8_e4m3:
        case Dtype::fp8_e5m2: break;
    }
    require(false, "fp8 has no type in HDF5 files");
    return Type::other;
}

std::string library_version() {
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    return fmt::format("HDF5 {}.{}.{}", major, minor, release);
}

}  // namespace coeus::hdf5
