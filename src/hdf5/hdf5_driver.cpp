// SPDX-License-Identifier: Apache-2.0
#include "hdf5_driver.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>  // from HDF5 1.14 on
#endif
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <compare>
#include <cstring>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>

namespace coeus::hdf5 {

namespace {

struct OpenFile {
    H5FD_t base = {};  // HDF5 uses it; must be first
    int descriptor = -1, flags = 0;
    std::string path;
    haddr_t eoa = 0, eof = 0;  // the end of what HDF5 has allocated, and of the file
    FileIdentity identity;
};

thread_local DriverFailure failure;

OpenFile& file_of(H5FD_t* file) {
    return *reinterpret_cast<OpenFile*>(file);
}
const OpenFile& file_of(const H5FD_t* file) {
    return *reinterpret_cast<const OpenFile*>(file);
}

herr_t failed(const char* what) {
    failure.other = std::string(what) + ": " + errno_text(errno);
    return -1;
}

H5FD_t* open_file(const char* name, unsigned flags, hid_t, haddr_t) {
    failure = {};
    int how = (flags & H5F_ACC_RDWR) != 0 ? O_RDWR | O_NOFOLLOW : O_RDONLY;
    const int always = how;
    if ((flags & H5F_ACC_TRUNC) != 0) how |= O_TRUNC;
    if ((flags & H5F_ACC_CREAT) != 0) how |= O_CREAT;
    if ((flags & H5F_ACC_EXCL) != 0) how |= O_EXCL;
    auto file = std::make_unique<OpenFile>();
    file->path = name;
    file->flags = always;
    file->descriptor = open_patiently(file->path, how);
    struct stat status = {};
    if (file->descriptor < 0 || !status_of(file->descriptor, file->path, status)) {
        if (may_pass(errno)) failure.read = file->path + " cannot be read: " + errno_text(errno);
        failed("unable to open file");
        if (file->descriptor >= 0) ::close(file->descriptor);
        return nullptr;
    }
    file->eof = haddr_t(status.st_size);
    file->identity = {status.st_dev, status.st_ino};
    return &file.release()->base;
}

herr_t close_file(H5FD_t* base) {
    const std::unique_ptr<OpenFile> file(&file_of(base));
    return ::close(file->descriptor) == 0 ? 0 : failed("unable to close file");
}

int compare(const H5FD_t* a, const H5FD_t* b) {
    const auto identity = [](const OpenFile& file) {
        return std::tuple(file.identity.device, file.identity.inode);
    };
    const auto order = identity(file_of(a)) <=> identity(file_of(b));
    return order < 0 ? -1 : order > 0 ? 1 : 0;
}

herr_t query(const H5FD_t*, unsigned long* features) {
    // those of HDF5's own driver; they decide where things are placed in a file
    if (features)
        *features = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
                    H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_POSIX_COMPAT_HANDLE |
                    H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

// HDF5 asks for the descriptor to see whether the name of a file is a link: other files that its arrays lie
// in are looked for beside the file itself.
herr_t get_handle(H5FD_t* base, hid_t, void** handle) {
    *handle = &file_of(base).descriptor;
    return 0;
}

haddr_t get_eoa(const H5FD_t* file, H5FD_mem_t) {
    return file_of(file).eoa;
}
herr_t set_eoa(H5FD_t* file, H5FD_mem_t, haddr_t eoa) {
    file_of(file).eoa = eoa;
    return 0;
}
haddr_t get_eof(const H5FD_t* file, H5FD_mem_t) {
    return file_of(file).eof;
}

herr_t read_bytes(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, size_t bytes, void* to) {
    const OpenFile& file = file_of(base);
    const int64_t done = read_patiently(file.descriptor, file.path, file.flags, to, int64_t(bytes),
                                        int64_t(address), read_patience(), file.identity);
    if (done < 0) {
        failure.read = file.path + " cannot be read: " + errno_text(errno);
        return -1;
    }
    // what is allocated and was never written reads as zero
    std::memset(static_cast<char*>(to) + done, 0, bytes - size_t(done));
    return 0;
}

herr_t write_bytes(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, size_t bytes, const void* from) {
    OpenFile& file = file_of(base);
    if (!write_patiently(file.descriptor, file.path, file.flags, from, int64_t(bytes), int64_t(address),
                         read_patience(), file.identity))
        return failed("file write failed");
    file.eof = std::max(file.eof, address + bytes);
    return 0;
}

herr_t truncate_file(H5FD_t* base, hid_t, hbool_t) {
    OpenFile& file = file_of(base);
    if (file.eoa == file.eof) return 0;
    if (patiently(file.path, [&] { return ftruncate(file.descriptor, off_t(file.eoa)); }) != 0)
        return failed("unable to extend file properly");
    file.eof = file.eoa;
    return 0;
}

H5FD_class_t driver_class() {
    H5FD_class_t driver = {};
#ifdef H5FD_CLASS_VERSION
    driver.version = H5FD_CLASS_VERSION;
    driver.value = H5FD_class_value_t(600);  // from 512 on they are free for programs
#endif
    driver.name = "patient";
    driver.maxaddr = haddr_t(std::numeric_limits<int64_t>::max());
    driver.fc_degree = H5F_CLOSE_WEAK;
    driver.open = open_file;
    driver.close = close_file;
    driver.cmp = compare;
    driver.query = query;
    driver.get_eoa = get_eoa;
    driver.set_eoa = set_eoa;
    driver.get_eof = get_eof;
    driver.get_handle = get_handle;
    driver.read = read_bytes;
    driver.write = write_bytes;
    driver.truncate = truncate_file;
    const H5FD_mem_t map[] = H5FD_FLMAP_DICHOTOMY;
    std::copy(std::begin(map), std::end(map), std::begin(driver.fl_map));
    return driver;
}

}  // namespace

hid_t patient_driver() {
    static const H5FD_class_t driver = driver_class();
    static const hid_t id = H5FDregister(&driver);
    return id;
}

DriverFailure take_driver_failure() {
    return std::exchange(failure, {});
}

}  // namespace coeus::hdf5
