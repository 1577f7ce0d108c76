// One OpenMP thread for what this thread does while the object lives.
#pragma once

// libdnnl brings these along.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int count);
}

namespace nimble::onednn {

// oneDNN asks OpenMP for the number of threads when it makes a primitive, and many kernels
// (pooling, binary, reorder, ...) once more when it is executed. Where the answer is 1 it calls
// the kernel's body directly: no parallel region is entered and no thread is started. The number
// belongs to the calling thread, so it costs two reads of thread-local memory to look at it; under
// the hooks of nimble._aten it is 1 already and nothing is written.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_;
};

}  // namespace nimble::onednn
