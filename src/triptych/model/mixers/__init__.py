"""What mixes along the sequence, beside softmax attention: one idea a file."""

from triptych.model.mixers import attentive as attentive
from triptych.model.mixers import bottleneck as bottleneck
from triptych.model.mixers import channel as channel
from triptych.model.mixers import coattention as coattention
from triptych.model.mixers import convolution as convolution
from triptych.model.mixers import deformable as deformable
from triptych.model.mixers import linear as linear
from triptych.model.mixers import linformer as linformer
from triptych.model.mixers import recurrent as recurrent
from triptych.model.mixers import retention as retention
from triptych.model.mixers import retrieval as retrieval
from triptych.model.mixers import ssm as ssm
